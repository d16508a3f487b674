# shellcheck shell=bash
# Sourced first by every script that a person starts. If the first argument is --help or -h, it prints the comment at the
# top of that script, and ends it.

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

usage() { sed -nE '2,/^[^#]/s/^#( |$)//p' "${script:-$0}"; }

takes_nothing() { [ $# = 0 ] || die "unknown argument $1 (see $0 --help)"; }

case ${1:-} in
  --help | -h) usage && exit ;;
esac
