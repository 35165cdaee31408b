"""Edits the symbol version tables of two manylinux_2_39 wheels, which then load on an older Linux.

The wheels of ml-metadata 1.21 and tensorflow-data-validation 1.21 require glibc 2.38 and libstdc++
13. Only six of their symbols need these versions, and each of the six has an older equivalent. If
the system lacks the versions, this module edits the requirements in the extension module of each
wheel:

* It marks a version that the system's libraries lack as weak, so the loader accepts its absence.
* It removes the version of a symbol that is bound to a missing version, and renames the symbol to
  its equivalent. The new name is a string that the string table already contains.

This module changes nothing if the libraries are new enough, or if the wheels have been edited
already. It imports only the standard library, because `scopeline doctor --fix` and tools/setup.sh
run it before other packages can be imported.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

EXTENSIONS = (
    "ml_metadata/metadata_store/pywrap/metadata_store_extension.so",
    "tensorflow_data_validation/pywrap/tensorflow_data_validation_extension.so",
)
SYSTEM_LIBRARIES = ("libc.so.6", "libstdc++.so.6")
KNOWN_VERSIONS = {b"GLIBC_2.38", b"GLIBCXX_3.4.32", b"CXXABI_1.3.15"}
_REMEDY = (
    "Use a Linux with glibc 2.39 or newer (Ubuntu 24.04, Debian 13), or install the version of the "
    "package that Scopeline's requirements.txt or uv.lock names."
)

# Offsets and constants of the ELF-64 format: https://refspecs.linuxfoundation.org/elf/gabi4+/
SHT_DYNSYM, SHT_VERNEED, SHT_VERSYM = 11, 0x6FFFFFFE, 0x6FFFFFFF
VER_FLG_WEAK, VER_NDX_GLOBAL, STB_WEAK = 2, 1, 2
SYMBOL_SIZE = 24
ISOC23_PREFIX = b"__isoc23_"
ISOC23_FUNCTIONS = {
    ISOC23_PREFIX + name for name in (b"strtol", b"strtoul", b"strtoll", b"strtoull")
}


class UnknownBinaryError(Exception):
    """An error for a file that this module cannot edit; the message describes the file."""


@dataclass(frozen=True)
class Section:
    """A section of an ELF file: type, file offset and size in bytes, and linked section."""

    type: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class VersionNeed:
    """A required symbol version: its name, its index, and the offset of its flags in the file."""

    library: str
    name: bytes
    index: int
    flags_offset: int
    weak: bool


class ElfFile:
    """The dynamic symbols and version needs of a 64-bit little-endian ELF file, in a bytearray."""

    def __init__(self, data: bytearray) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise UnknownBinaryError("not a 64-bit little-endian ELF file")
        self.data = data
        self.sections = list(self._read_sections())
        self.symbols = self._section(SHT_DYNSYM)
        self.strings = self.sections[self.symbols.link]
        self.versions = self._section(SHT_VERSYM)
        self.needs = list(self._read_needs(self._section(SHT_VERNEED)))

    def _read_sections(self) -> Iterator[Section]:
        (start,) = struct.unpack_from("<Q", self.data, 40)
        size, count = struct.unpack_from("<HH", self.data, 58)
        for i in range(count):
            _, kind, _, _, offset, length, link = struct.unpack_from(
                "<IIQQQQI", self.data, start + i * size
            )
            yield Section(kind, offset, length, link)

    def _section(self, kind: int) -> Section:
        found = [s for s in self.sections if s.type == kind]
        if len(found) != 1:
            raise UnknownBinaryError(f"{len(found)} sections of type {kind:#x}, expected one")
        return found[0]

    def string(self, offset: int) -> bytes:
        """Returns the zero-terminated string at an offset of the dynamic string table."""
        start = self.strings.offset + offset
        return bytes(self.data[start : self.data.index(0, start)])

    def find_string(self, text: bytes) -> int:
        """Returns the offset of a string in the dynamic string table.

        Raises:
          UnknownBinaryError: the table lacks the string.
        """
        start, end = self.strings.offset, self.strings.offset + self.strings.size
        position = self.data.find(b"\0" + text + b"\0", start, end)
        if position < 0:
            raise UnknownBinaryError(f"the string table lacks {text.decode()}")
        return position + 1 - start

    def _read_needs(self, section: Section) -> Iterator[VersionNeed]:
        library_at = section.offset
        while True:
            _, count, file, first, following = struct.unpack_from("<HHIII", self.data, library_at)
            entry_at = library_at + first
            for _ in range(count):
                _, flags, index, name, step = struct.unpack_from("<IHHII", self.data, entry_at)
                yield VersionNeed(
                    self.string(file).decode(),
                    self.string(name),
                    index,
                    entry_at + 4,
                    bool(flags & VER_FLG_WEAK),
                )
                entry_at += step
            if not following:
                return
            library_at += following

    def symbols_of(self, version_index: int) -> Iterator[int]:
        """Returns the indices of the dynamic symbols bound to a version."""
        count = self.symbols.size // SYMBOL_SIZE
        indices = struct.unpack_from(f"<{count}H", self.data, self.versions.offset)
        return (i for i, index in enumerate(indices) if index & 0x7FFF == version_index)

    def symbol_name(self, symbol: int) -> bytes:
        """Returns the name of a dynamic symbol."""
        (name,) = struct.unpack_from("<I", self.data, self.symbols.offset + symbol * SYMBOL_SIZE)
        return self.string(name)

    def rename(self, symbol: int, string_offset: int) -> None:
        """Points a symbol's name at another offset of the string table."""
        struct.pack_into("<I", self.data, self.symbols.offset + symbol * SYMBOL_SIZE, string_offset)

    def make_weak(self, symbol: int) -> None:
        """Sets a symbol's binding to weak, so no library must define the symbol."""
        at = self.symbols.offset + symbol * SYMBOL_SIZE + 4
        self.data[at] = (STB_WEAK << 4) | (self.data[at] & 0xF)

    def unversion(self, symbol: int) -> None:
        """Removes the version of a symbol."""
        struct.pack_into("<H", self.data, self.versions.offset + 2 * symbol, VER_NDX_GLOBAL)

    def make_need_weak(self, need: VersionNeed) -> None:
        """Marks a required version as weak, so that the loader accepts its absence."""
        struct.pack_into("<H", self.data, need.flags_offset, VER_FLG_WEAK)


def _replace_symbol(elf: ElfFile, symbol: int) -> None:
    """Replaces a symbol of a missing version with its older equivalent."""
    name = elf.symbol_name(symbol)
    if name in ISOC23_FUNCTIONS:
        # The plain function's name is the suffix of the same string.
        elf.rename(symbol, elf.find_string(name) + len(ISOC23_PREFIX))
    elif name == b"__cxa_call_terminate":
        # The function is called when an exception leaves a noexcept function, which aborts.
        elf.rename(symbol, elf.find_string(b"abort"))
    elif name == b"_ZSt21ios_base_library_initv":
        # The symbol only forces a link against a new libstdc++; no code calls it.
        elf.make_weak(symbol)
    else:
        raise UnknownBinaryError(f"no older equivalent is known for the symbol {name.decode()}")
    elf.unversion(symbol)


def relax(data: bytearray, provides: Callable[[str, bytes], bool]) -> int:
    """Edits an extension module in place.

    Args:
      provides: a function of the file name of a library and a version that returns whether the
        system's library defines the version.

    Returns:
      The number of relaxed version needs; if 0, the bytes are unchanged.

    Raises:
      UnknownBinaryError: the module needs a version or a symbol that this module cannot replace.
    """
    elf = ElfFile(data)
    missing = [
        n
        for n in elf.needs
        if n.library in SYSTEM_LIBRARIES and not n.weak and not provides(n.library, n.name)
    ]
    for need in missing:
        if need.name not in KNOWN_VERSIONS:
            raise UnknownBinaryError(f"the module needs {need.name.decode()} of {need.library}")
        for symbol in elf.symbols_of(need.index):
            _replace_symbol(elf, symbol)
        elf.make_need_weak(need)
    return len(missing)


def _loaded_library(name: str) -> Path:
    """Returns the file that the dynamic loader chooses for a library name."""
    import ctypes

    ctypes.CDLL(name)
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith(name.split(".so")[0] + ".so") or path.endswith("/" + name):
            return Path(path)
    raise UnknownBinaryError(f"{name} is loaded but missing in /proc/self/maps")


class SystemVersions:
    """The symbol versions that the system's libc and libstdc++ define; each file is read once."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def __call__(self, library: str, version: bytes) -> bool:
        """Returns whether a library, by file name, defines a version."""
        if library not in self._contents:
            self._contents[library] = _loaded_library(library).read_bytes()
        return b"\0" + version + b"\0" in self._contents[library]


def relax_file(path: Path, provides: Callable[[str, bytes], bool]) -> int:
    """Edits a copy of an extension module with `relax`, and renames the copy into place."""
    data = bytearray(path.read_bytes())
    relaxed = relax(data, provides)
    if relaxed:
        # The installed file may be a hard link into the package cache, so a new file is written.
        copy = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            copy.write_bytes(data)
            shutil.copymode(path, copy)
            copy.replace(path)
        finally:
            copy.unlink(missing_ok=True)
    return relaxed


def _find_extensions() -> Iterator[tuple[str, Path]]:
    """Yields the names and the files of the two extension modules, if they are installed."""
    for name in EXTENSIONS:
        # The packages cannot be imported yet.
        spec = find_spec(name.partition("/")[0])
        if spec is not None and spec.origin is not None:
            yield name, Path(spec.origin).parents[1] / name


def needs_relaxing() -> bool:
    """Returns whether a module does not load before `relax_environment` has edited it.

    The check takes milliseconds, and the import of the libraries before the module fails takes many
    seconds. Unknown files count as loadable, as only their import shows whether they are.
    """
    provides = SystemVersions()
    try:
        return any(relax(bytearray(path.read_bytes()), provides) for _, path in _find_extensions())
    except (UnknownBinaryError, OSError, struct.error, ValueError):
        return False


def relax_environment() -> list[str]:
    """Edits the two extension modules in the environment of this Python.

    Returns:
      A line for each module that was edited.

    Raises:
      UnknownBinaryError: a module is unknown or cannot be written.
    """
    provides, lines = SystemVersions(), []
    for name, path in _find_extensions():
        try:
            relaxed = relax_file(path, provides)
        except OSError as error:
            raise UnknownBinaryError(f"{path} cannot be edited: {error}") from error
        except (UnknownBinaryError, struct.error, ValueError) as error:
            raise UnknownBinaryError(f"{path}: {error}. {_REMEDY}") from error
        if relaxed:
            lines.append(f"{name}: relaxed {relaxed} version needs that this Linux lacks")
    return lines


def is_caused_by_older_linux(error: ImportError) -> bool:
    """Returns whether an import failed because the system lacks a version that `relax` handles."""
    return any(version.decode() in str(error) for version in KNOWN_VERSIONS)


def main() -> int:
    """Edits the two modules; returns 1 if a file is unknown."""
    try:
        for line in relax_environment():
            print(line)  # noqa: T201 - tools/setup.sh runs this module as a program.
    except UnknownBinaryError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
