"""From which tag and commit a package was built.

`make release` puts `built-from.txt` (`v0.1.0 1a2b3c4d…`) into each package that it builds, and nothing else does: a
package without it comes from somebody's working tree, and says so.
"""

from __future__ import annotations

from importlib.resources import files

NAME = "built-from.txt"
DEVELOPMENT = "development"
_COMMIT_CHARACTERS = 8


def built_from(package: str) -> str:
    """`v0.1.0, 1a2b3c4d`, or `development`."""
    try:
        words = files(package).joinpath(NAME).read_text("utf-8").split()
    except (OSError, ImportError, AttributeError, TypeError, ValueError):  # a plugin may be any module, of any loader
        return DEVELOPMENT
    return f"{words[0]}, {words[1][:_COMMIT_CHARACTERS]}" if len(words) == 2 else DEVELOPMENT


def version_line(program: str, distribution: str, package: str) -> str:
    """What `--version` prints: `llmgw 0.1.0 (v0.1.0, 1a2b3c4d)`."""
    from importlib.metadata import version

    return f"{program} {version(distribution)} ({built_from(package)})"
