# shellcheck shell=bash
# Sourced: lists the Python versions that bert_jax is tested with, newest first, and finds them.
# shellcheck disable=SC2034
tried=(3.13 3.12 3.11)

# Prints the path of the first of the given versions that is found, and fails if none is: find_python 3.13 3.12
find_python() {
  local version candidate
  for version in "$@"; do
    for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python python3; do
      if [ "$(version_of "$candidate")" = "$version" ]; then
        "$candidate" -c "import sys; print(sys.executable)"
        return
      fi
    done
  done
  return 1
}

# Prints X.Y, or nothing if the program is not Python or cannot create virtual environments, such as Debian's Python
# without python3-venv.
version_of() {
  "$1" -c 'import ensurepip, sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}
