"""Asks a server over HTTP, in a process of its own: as fast as it answers, or at a fixed rate.

At a fixed rate requests are due at times that the server has no say in, and latency counts from
then: a server that is slow for a second cannot hide the requests that would have come meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

_LATE_SECONDS = 30.0
"""How long an answer may take."""


@dataclass
class Result:
    """What became of the requests."""

    latencies: list[float] = field(default_factory=list)
    """Seconds of those that were answered."""
    failures: list[tuple[float, str]] = field(default_factory=list)
    """When others failed, in seconds since 1970, and why."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """What is printed; latencies in milliseconds."""
        found = np.array(self.latencies or [np.nan]) * 1000
        return {
            "answered": len(self.latencies),
            "rate": len(self.latencies) / self.seconds,
            **{f"p{q}": float(np.percentile(found, q)) for q in (50, 99)},
            "failed": dict(Counter(reason for _, reason in self.failures)),
            "first_failure": min((at for at, _ in self.failures), default=None),
        }


async def run(url: str, body: bytes, clients: int, rate: float, seconds: float) -> Result:
    """Asks for some seconds.

    Args:
      url: to post to.
      body: of every request.
      clients: connections.
      rate: requests a second; 0 asks again as soon as there is an answer.
      seconds: to go on for.
    """
    result, begin = Result(), time.time()
    due = iter(np.arange(0, seconds, 1 / rate).tolist()) if rate else None
    connector = aiohttp.TCPConnector(limit=clients)
    timeout = aiohttp.ClientTimeout(total=_LATE_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def client() -> None:
            while (now := time.time() - begin) < seconds:
                at = now if due is None else next(due, None)
                if at is None:
                    return
                await asyncio.sleep(at - now)
                await _ask(session, url, body, begin + at, result)

        await asyncio.gather(*(client() for _ in range(clients)))
    result.seconds = time.time() - begin
    return result


async def _ask(
    session: aiohttp.ClientSession, url: str, body: bytes, due: float, result: Result
) -> None:
    try:
        async with session.post(url, data=body) as answer:
            await answer.read()
            reason = "" if answer.status == 200 else f"status {answer.status}"
    except (aiohttp.ClientError, TimeoutError) as error:
        reason = type(error).__name__
    if reason:
        result.failures.append((time.time(), reason))
    else:
        result.latencies.append(time.time() - due)


def main() -> None:
    """Prints what became of the requests, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("body", type=Path)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    body = given.body.read_bytes()
    found = asyncio.run(run(given.url, body, given.clients, given.rate, given.seconds))
    print(json.dumps(found.to_json()))


if __name__ == "__main__":
    main()
