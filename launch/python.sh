# shellcheck shell=bash
# Sourced: the Pythons that bert_jax was tried with, newest first, and where they are.
# shellcheck disable=SC2034
tried=(3.13 3.12 3.11)

# Prints the path of the first of these Pythons that is found, and fails if none is: find_python 3.13 3.12
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

# Prints X.Y, or nothing for what is no Python or cannot make virtual environments, as Debian's without python3-venv.
version_of() {
  "$1" -c 'import ensurepip, sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}
