"""The commands of Scopeline as `python -m scopeline`."""

from __future__ import annotations


def main() -> None:
    """Runs the command line."""
    # The import is here, because only the command line needs it.
    from scopeline_programs import scopeline

    scopeline()


if __name__ == "__main__":
    main()
