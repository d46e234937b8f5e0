"""The platforms that a file is made for, and what pip and pex call them.  Pure.

A file for Linux is made of wheels for glibc 2.17, one for macOS of wheels for macOS 11. It has the wheels of every
Python from 3.11 to 3.14.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms

Python = tuple[int, int]
PYTHONS: tuple[Python, ...] = ((3, 11), (3, 12), (3, 13), (3, 14))
NEWEST_GLIBC = (2, 17)
MACOS = (11, 0)
# https://peps.python.org/pep-0600/#legacy-manylinux-tags
_LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
_OLDEST_GLIBC = {"x86_64": (2, 5), "aarch64": (2, 17)}


@frozen
class Target:
    """A platform by the words that a release has for it."""

    name: str
    system: str
    machine: str
    """As `uname -m` says."""

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platform tags of the wheels that may go in, the best first."""
        if self.system == "Darwin":
            return tuple(mac_platforms(MACOS, self.machine))
        found = []
        for minor in range(NEWEST_GLIBC[1], _OLDEST_GLIBC[self.machine][1] - 1, -1):
            found.append(f"manylinux_2_{minor}_{self.machine}")
            if (2, minor) in _LEGACY:
                found.append(f"{_LEGACY[2, minor]}_{self.machine}")
        return tuple(found)

    def tags(self, python: Python) -> tuple[Tag, ...]:
        interpreter = f"cp{python[0]}{python[1]}"
        native = cpython_tags(python, [interpreter], self.platforms)
        return (*native, *compatible_tags(python, interpreter, self.platforms))

    def markers(self, python: Python) -> dict[str, str]:
        """The environment in which requirements are read; a lock must not depend on a patch release."""
        version = f"{python[0]}.{python[1]}"
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{version}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": self.system,
            "platform_version": "",
            "python_full_version": f"{version}.0",
            "python_version": version,
            "sys_platform": self.system.lower(),
        }

    def complete_platform(self, python: Python) -> dict[str, Any]:
        """What pex reads with --complete-platform."""
        return {"marker_environment": self.markers(python), "compatible_tags": list(map(str, self.tags(python)))}


TARGETS = (
    Target("linux-amd64", "Linux", "x86_64"),
    Target("linux-arm64", "Linux", "aarch64"),
    Target("darwin-arm64", "Darwin", "arm64"),
)
