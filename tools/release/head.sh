#!/bin/sh
# @TITLE@ for @TARGET@ (@TAG@, @COMMIT@).
# A shell script, and after it a zip archive with llmgw, its engine plugins and all that they import. It needs a Python
# from 3.11 to 3.14 and nothing else. At its first start it unpacks itself, and later starts run what was unpacked.
set -eu
unset CDPATH # with it, cd prints
unpacked="@TITLE@-@DIGEST@"

refuse() {
    echo "llmgw: $1" >&2
    exit 2
}

# A directory of root's, or of whoever runs this, that nobody else may write to.
is_ours() {
    # shellcheck disable=SC2046
    set -- $(ls -ldn "$1/." 2>/dev/null)
    case ${1:-} in d????-??-*) [ "$3" = 0 ] || [ "$3" = "$uid" ] ;; *) return 1 ;; esac
}

runs_from() {
    [ -n "$1" ] && [ -x "$1/$unpacked/bin/python" ] && is_ours "$1"
}

takes_files() {
    [ -n "$1" ] && (umask 022 && mkdir -p "$1" 2>/dev/null) && [ -w "$1" ] && is_ours "$1" && runs_programs "$1"
}

# Libraries cannot be loaded from what is mounted noexec, and that would be told late and in many words.
runs_programs() (
    try=$(mktemp "$1/try-XXXXXX" 2>/dev/null) || exit 1
    trap 'rm -f "$try"' EXIT
    echo '#!/bin/sh' >"$try" 2>/dev/null || :
    chmod 700 "$try" && "$try" 2>/dev/null
)

check_platform() {
    case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) here=linux-amd64 ;;
    Linux-aarch64) here=linux-arm64 ;;
    Darwin-arm64) here=darwin-arm64 ;;
    *) here=$(uname -sm) ;;
    esac
    [ "$here" = "@TARGET@" ] || refuse "this file is for @TARGET@, and this is $here: take that one's file"
}

choose_python() {
    if [ -n "${LLMGW_PYTHON:-}" ] && ! "$LLMGW_PYTHON" -I -c '' 2>/dev/null; then
        refuse "LLMGW_PYTHON=$LLMGW_PYTHON does not run"
    fi
    for python in "${LLMGW_PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$python" -I -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
            return
        fi
        [ -z "${LLMGW_PYTHON:-}" ] || refuse "it needs Python 3.11 to 3.14, and LLMGW_PYTHON=$LLMGW_PYTHON is another"
    done
    refuse "it needs Python 3.11 to 3.14, and $PATH has none: install python3, or set LLMGW_PYTHON=/path/to/python3.12"
}

# Its commands name their Python by its path, and are to name it where it will be.
move_names='import os, pathlib, sys
old, new = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
for path in pathlib.Path(old, "bin").iterdir():
    if path.is_file() and not path.is_symlink():
        path.write_bytes(path.read_bytes().replace(os.fsencode(old), os.fsencode(new)))'

# Unpacked whole or not at all, also when two do so at the same time; compiled, so that they start quickly who may not
# write there. What pex itself unpacks on the way goes again.
unpack() (
    umask 022
    unset PEX_MODULE PEX_SCRIPT PEX_PATH PEX_PYTHON PEX_PYTHON_PATH PEX_VENV PEX_EXTRA_SYS_PATH PEX_INTERPRETER
    unset PYTHONHOME PYTHONPATH
    new=$(mktemp -d "$1/new-XXXXXX") || exit 1
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' HUP INT TERM
    new=$(cd "$new" && pwd -P)
    {
        PEX_TOOLS=1 PEX_IGNORE_RCFILES=1 PEX_ROOT="$new/pex" TMPDIR="$new" \
            "$python" -I "$file" venv --compile --site-packages-copies "$new/unpacked" &&
            "$python" -I -c "$move_names" "$new/unpacked" "$1/$unpacked"
    } >"$new/said" 2>&1 || {
        cat "$new/said" >&2
        exit 1
    }
    [ -x "$1/$unpacked/bin/python" ] || rm -rf "${1:?}/$unpacked" # of a Python that is gone
    [ -d "$1/$unpacked" ] || mv "$new/unpacked" "$1/$unpacked"
)

file=$(readlink -f "$0" 2>/dev/null) || file=$0
case ${XDG_CACHE_HOME:-} in
/*) own="$XDG_CACHE_HOME/llmgw" ;;
*) own="${HOME:+$HOME/.cache/llmgw}" ;;
esac
uid=$(id -u)
if [ "$uid" = 0 ]; then own=/var/cache/llmgw; fi

if [ -n "${LLMGW_CACHE:-}" ]; then
    set -- "$LLMGW_CACHE" "" "" "$@"
else
    of_unit=${CACHE_DIRECTORY:-} # systemd sets it, for CacheDirectory=
    set -- "${of_unit%%:*}" /var/cache/llmgw "$own" "$@"
fi
if runs_from "$1"; then cache=$1
elif runs_from "$2"; then cache=$2
elif runs_from "$3"; then cache=$3
else
    if takes_files "$1"; then cache=$1
    elif takes_files "$3"; then cache=$3
    else refuse "there is no directory of ours to unpack into (tried: $1 $3): set LLMGW_CACHE to one, not mounted noexec"
    fi
    check_platform
    choose_python
    unpack "$cache" || refuse "it could not be unpacked into $cache"
fi
shift 3

# A link by another command's name is that command.
command=${0##*/}
case $command in
llmgw-provision-node | llmgw-onboard-node | llmgw-sim) ;;
*) command=llmgw ;;
esac
cache=$(cd "$cache" && pwd)
export LLMGW_FILE="$file" LLMGW_CACHE="$cache"
exec "$cache/$unpacked/bin/python" -I "$cache/$unpacked/bin/$command" "$@"
