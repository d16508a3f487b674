#!/usr/bin/env bash
# Builds a searchable site of all pages, with a reference of every public name, flag and config key, in build/docs/site.
# A link that leads nowhere is an error.
#
#   launch/docs.sh         builds it
#   launch/docs.sh serve   builds it and shows it at localhost:8000; start it again to see what you changed
#
# REPOSITORY=ADDRESS adds a link to the repository; RUN_NOTEBOOKS=yes runs the notebooks, so that their pages show what
# they print and their pictures. PYTHON=/path/to/python chooses another Python, VENV=FOLDER another folder than .venv.
set -euo pipefail
# shellcheck source=launch/usage.sh
source "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
[ "$*" = serve ] || takes_nothing "$@"
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" docs
export JAX_PLATFORMS=cpu
python launch/docs.py build/docs ${REPOSITORY:+--repository "$REPOSITORY"} ${RUN_NOTEBOOKS:+--run-notebooks}
zensical build --clean --strict --config-file build/docs/mkdocs.yml
[ "$*" != serve ] || exec zensical serve --config-file build/docs/mkdocs.yml
