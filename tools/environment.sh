# Sourced by tools/demo and tools/test: chooses a Python, makes .venv with the extras "workstation" and "dev", adds front ends.
# Idempotent; the second time it only compares a stamp. Needs bash and one of Python 3.11, 3.12, 3.13 with venv.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV="$ROOT/.venv"
PYTHON="$VENV/bin/python"
PYENV_VERSIONS="${PYENV_ROOT:-$HOME/.pyenv}/versions"

say() { printf '%s\n' "$*" >&2; }

# Whether $1 starts, is Python 3.$2, and can make environments (shims on the path may exist and fail; Debian splits venv off).
python_works() {
  "$1" -c "import sys, venv, ensurepip, ssl, ctypes; sys.exit(sys.version_info[:2] != (3, $2))" >/dev/null 2>&1
}

# Prints the newest of Python 3.$1.. that works, looking at the path first and then where pyenv keeps its versions.
find_python() {
  local minor candidate
  for minor in "$@"; do
    for candidate in "$(command -v "python3.$minor" || true)" "$(command -v python3 || true)" /usr/bin/python3."$minor" \
      /usr/local/bin/python3."$minor" "$PYENV_VERSIONS"/3."$minor".*/bin/python3; do
      if [ -x "$candidate" ] && python_works "$candidate" "$minor"; then
        # The interpreter itself, not a shim that depends on the folder it is called from.
        "$candidate" -c 'import os, sys; print(os.path.realpath(sys.executable))'
        return 0
      fi
    done
  done
  return 1
}

refuse_without_python() {
  say "edgekit needs Python 3.11, 3.12 or 3.13 with the venv module, and none that works was found on the path, in /usr/bin,"
  say "/usr/local/bin or $PYENV_VERSIONS. Debian 12 or 13 and Ubuntu 24.04:  apt-get install python3 python3-venv"
  exit 2
}

# A change of Python, of the pins or of this script makes the environment anew; anything else leaves it alone.
wanted_stamp() {
  printf '%s\n' "$1"
  cat "$ROOT/pyproject.toml" "${BASH_SOURCE[0]}" | sha256sum
}

make_environment() {
  local python stamp="$VENV/edgekit-stamp"
  if [ -x "$PYTHON" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted_stamp "$(head -n 1 "$stamp")")" ] \
    && "$PYTHON" -c 'import edgekit, numpy' >/dev/null 2>&1; then
    return
  fi
  python=$(find_python 13 12 11) || refuse_without_python
  say "making .venv with $("$python" --version) (about 400 MB, a minute or two)"
  rm -rf "$VENV"
  "$python" -m venv "$VENV"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --editable "$ROOT[workstation,dev]"
  wanted_stamp "$python" >"$stamp"
}

# Adds the given front ends, or without arguments the best one that this machine's Pythons allow. NAME@11 asks for Python 3.11, if there is one.
add_frontends() {
  local wanted=("$@") name
  if [ ${#wanted[@]} -eq 0 ]; then
    if find_python 13 12 >/dev/null; then wanted=(onnx2tf); else wanted=(tensorflow); fi
  fi
  for name in "${wanted[@]}"; do
    local with=() python
    if [ "${name#*@}" != "$name" ] && python=$(find_python "${name#*@}"); then with=(--python "$python"); fi
    "$PYTHON" -m edgekit frontend add "${name%@*}" ${with[@]+"${with[@]}"} >/dev/null
  done
}
