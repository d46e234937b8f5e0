"""One look at the machine: a script for its sh, and what it prints.  Pure.

Rules: it changes nothing; what is asked works without Python, and without being root as far as that goes; values that
may have line breaks are in base64.
"""

from __future__ import annotations

import base64
import binascii
from collections import defaultdict
from collections.abc import Mapping

from llmgw_core.onboard.facts import Family, Machine
from llmgw_core.onboard.request import ETC, SETTINGS, UNFINISHED, UNIT, UNIT_NAME, NodeRequest
from llmgw_core.provision.awaiting import RELEASE

ANCHORS = {
    Family.DEBIAN: "/usr/local/share/ca-certificates/llmgw-authority.crt",
    Family.REDHAT: "/etc/pki/ca-trust/source/anchors/llmgw-authority.crt",
}
BUNDLES = {
    Family.DEBIAN: "/etc/ssl/certs/ca-certificates.crt",
    Family.REDHAT: "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
}
DIRECTORIES = ("/usr/local/bin", "/etc", "/var")
TOOLS = ("systemctl", "journalctl", "sha256sum", "mktemp", "base64", "update-ca-certificates", "update-ca-trust")
PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
"""In the order in which a release looks for them."""
MOST_BESIDE = 64
_DIGITS = 11
"""Of seconds since 1970: until the year 5138."""
_FITS = "import ssl,sys;ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*sys.argv[1:])"
_VERSION = "import sys;print('%d.%d'%sys.version_info[:2])"

_SCRIPT = f"""\
executable=$1 certificate=$2 key=$3 marker=$4 adapters=$5
say() {{ printf '%s=%s\\n' "$1" "$(printf %s "$2" | tr '\\n' ' ')"; }}
as=
if [ "$(id -u)" = 0 ]; then say root yes
elif said=$(sudo -n sh -c : 2>&1); then as="sudo -n"; say sudo yes
else say sudo_said "$said"; fi
say clock "$(date +%s)"
say hostname "$(uname -n)"
say system "$(uname -s)"
say architecture "$(uname -m)"
for file in /etc/os-release /usr/lib/os-release; do [ -r $file ] && {{
    (. $file; say os_id "${{ID:-}} ${{ID_LIKE:-}}"; say os_name "${{PRETTY_NAME:-}}"); break; }}; done
[ -d /run/systemd/system ] && say systemd yes
for tool in {" ".join(TOOLS)}; do command -v $tool >/dev/null && say tool $tool; done
python=
for each in {" ".join(PYTHONS)}; do
    version=$($each -I -c "{_VERSION}" 2>/dev/null) || continue
    python=${{python:-$each}}
    say python "$each $version"
done
for directory in {" ".join(DIRECTORIES)}; do
    [ -d $directory ] && say free "$directory $(df -Pk $directory | tail -n 1)"
    [ ! -d $directory ] || $as test -w $directory || say closed $directory
done
for file in {RELEASE} {SETTINGS} {UNIT} {ETC}/ca.crt {" ".join(ANCHORS.values())}; do
    sum=$($as sha256sum $file 2>/dev/null) && say digest "$file ${{sum%% *}}"
done
for each in $($as ls "$adapters" 2>/dev/null | head -n {MOST_BESIDE}); do say adapter "$each"; done
say settings "$($as base64 {SETTINGS} 2>/dev/null | tr -d '\\n')"
say certificate "$($as base64 "$certificate" 2>/dev/null | tr -d '\\n')"
for file in $($as ls {ETC} 2>/dev/null | grep -x '[a-z0-9-]*[.]crt' | head -n {MOST_BESIDE}); do
    [ $file = ca.crt ] || say beside "$file $($as base64 {ETC}/$file 2>/dev/null | tr -d '\\n')"
done
say key_mode "$($as stat -c %a "$key" 2>/dev/null)"
[ -n "$python" ] && $as "$python" -I -c "{_FITS}" "$certificate" "$key" 2>/dev/null && say key_fits yes
for file in {" ".join(BUNDLES.values())}; do grep -qF -e "$marker" $file 2>/dev/null && say trusts yes; done
$as [ -e {UNFINISHED} ] && say unfinished yes
say release "$($as "$executable" --version </dev/null 2>&1 | tail -n 1)"
say enabled "$($as systemctl is-enabled {UNIT_NAME} 2>/dev/null)"
say active "$($as systemctl is-active {UNIT_NAME} 2>/dev/null)"
say unit "$($as systemctl show -p LoadState,NeedDaemonReload {UNIT_NAME} 2>/dev/null)"
say whole yes
"""


def probe_script() -> str:
    return _SCRIPT


def probe_arguments(request: NodeRequest, root_pem: bytes) -> tuple[str, ...]:
    return (request.executable, request.certificate, request.key, marker_of(root_pem), request.adapter_tree)


def marker_of(root_pem: bytes) -> str:
    """A line of the root that no other certificate has: 64 characters of its signature, as every bundle has them."""
    lines = root_pem.decode("ascii").split()
    whole = [line for line in lines if len(line) == 64]
    return whole[-1] if whole else lines[-1]


def _said(text: str) -> defaultdict[str, list[str]]:
    """Its values, by name."""
    said = defaultdict[str, list[str]](list)
    for line in text.splitlines():
        name, joint, value = line.partition("=")
        if joint:
            said[name].append(value.strip())
    return said


def parse_probe(text: str, now_s: float) -> Machine | None:
    """`None`: that is not what the script prints. `now_s`: this host's clock when it was asked."""
    said = _said(text)
    if said["whole"] != ["yes"]:
        return None
    one = {name: values[0] for name, values in said.items() if values}
    good, other = _pythons(said["python"])
    return Machine(
        is_root="root" in one,
        becomes_root="root" in one or "sudo" in one,
        sudo_said=one.get("sudo_said", ""),
        hostname=one.get("hostname", ""),
        system=one.get("system", ""),
        architecture=one.get("architecture", ""),
        os_name=one.get("os_name", ""),
        family=_family(one.get("os_id", "").split()),
        has_systemd="systemd" in one,
        python=good,
        other_python=other,
        clock_ahead_s=_number(one.get("clock", "")) - now_s if one.get("clock") else 0.0,
        free_kib=_free(said["free"]),
        closed=tuple(said["closed"]),
        adapters=frozenset(said["adapter"]),
        tools=frozenset(said["tool"]),
        digests={name: digest for name, _, digest in (each.partition(" ") for each in said["digest"])},
        settings=_text(one.get("settings", "")),
        certificate=_bytes(one.get("certificate", "")),
        beside=_files(said["beside"]),
        key_fits="key_fits" in one,
        key_mode=one.get("key_mode", ""),
        trusts_root="trusts" in one,
        release_says=one.get("release", ""),
        enabled=one.get("enabled", "") == "enabled",
        active=one.get("active", "") == "active",
        needs_reload=_needs_reload(one.get("unit", "").split(), f"{UNIT} " in "".join(said["digest"])),
        unfinished="unfinished" in one,
    )


def _needs_reload(properties: list[str], is_there: bool) -> bool:
    """Whether systemd has another unit in mind than the file, or none where there is one."""
    return "NeedDaemonReload=yes" in properties or (is_there and "LoadState=loaded" not in properties)


def _pythons(said: list[str]) -> tuple[str, str]:
    good = [each for each in said if (3, 11) <= _version(each) < (3, 15)]
    return (good or [""])[0], (said or [""])[0] if not good else ""


def _version(said: str) -> tuple[int, ...]:
    words = said.split()[-1:] or [""]
    return tuple(int(part) for part in words[0].split(".") if part.isdecimal())


def _family(words: list[str]) -> Family:
    if {"debian", "ubuntu"} & set(words):
        return Family.DEBIAN
    return Family.REDHAT if {"rhel", "fedora", "centos"} & set(words) else Family.OTHER


def _free(said: list[str]) -> Mapping[str, int]:
    """POSIX df -Pk: file system, blocks, used, available, capacity, mount point."""
    rows = [each.split() for each in said]
    return {row[0]: int(row[4]) for row in rows if len(row) > 4 and row[4].isdecimal()}


def _files(said: list[str]) -> Mapping[str, bytes]:
    pairs = [(f"{ETC}/{name}", _bytes(content)) for name, _, content in (each.partition(" ") for each in said)]
    return {path: content for path, content in pairs if content is not None}


def _number(text: str) -> float:
    return float(text) if text.isdecimal() and len(text) <= _DIGITS else 0.0


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text) or None
    except (binascii.Error, ValueError):
        return None


def _text(text: str) -> str | None:
    content = _bytes(text)
    return None if content is None else content.decode("utf-8", "surrogateescape")
