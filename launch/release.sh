#!/usr/bin/env bash
# Checks that the committed tree can be released, builds dist/ from it, and prints the commands that release it. It
# uploads nothing.
#
#   launch/release.sh
#
# It stops unless nothing is uncommitted, the newest heading of CHANGELOG.md names the version of bert_jax/__init__.py,
# no other commit has the tag of that version, .ci/run and the longest tests of the package succeed, and a package index
# would accept the wheel and the source archive. REPOSITORY=https://HOST/OWNER/NAME is where the page of the index links
# to; without it, the links of README.md lead nowhere there.
set -euo pipefail
# shellcheck source=launch/usage.sh
source "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
takes_nothing "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/python.sh
source launch/python.sh
repository=${REPOSITORY:-}

[ -z "$(git status --porcelain)" ] || die "the tree has changes that are not committed: git status"
version=$(sed -nE 's/^__version__ = "(.*)"$/\1/p' bert_jax/__init__.py) tag=v$version
newest=$(sed -nE 's/^## \[([0-9].*)\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$/\1/p' CHANGELOG.md | head -n 1)
[ "$newest" = "$version" ] || die "bert_jax/__init__.py has version $version, and CHANGELOG.md $newest as its newest"
commit=$(git rev-parse HEAD)
[ "$(git rev-parse -q --verify "$tag^{commit}" || echo "$commit")" = "$commit" ] ||
  die "the tag $tag is that of another commit: raise __version__, and say in CHANGELOG.md what is new"
.ci/run --whole || die "the tests fail: .ci/run --whole"
installing=tests/docs/test_package.py
launch/test.sh -q -rs -m long "$installing" || die "the package cannot be installed: $installing"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
git archive HEAD | tar -x -C "$scratch"
if [ -n "$repository" ]; then
  # The index knows no file beside README.md.
  at="$repository/blob/$tag" picture='!\[[^]]*' path='([^:)#][^:)]*\))'
  sed -i -E "s#($picture\]\()$path#\1$repository/raw/$tag/\2#g; s#(\]\()$path#\1$at/\2#g" "$scratch/README.md"
  urls="[project.urls]\nSource = \"$repository\"\nChangelog = \"$at/CHANGELOG.md\"\n\n"
  sed -i "s#^\[project.scripts\]#$urls&#" "$scratch/pyproject.toml"
else
  echo "without REPOSITORY the links of README.md lead nowhere on the page of the index"
fi
# These stand in an environment of their own, since only a release needs them. twine shows README.md as the index does;
# the index refuses classifiers that are not its own.
"$(find_python "${tried[@]}")" -m venv "$scratch/tools"
tool() { "$scratch/tools/bin/python" -m "$@"; }
tool pip install --quiet --disable-pip-version-check build==1.6.1 twine==7.0.0 trove-classifiers
tool build "$scratch" --outdir "$scratch/dist" >"$scratch/log" ||
  die "the package cannot be built: $(tail -n 1 "$scratch/log")"
tool twine check --strict "$scratch"/dist/*
known=$("$scratch/tools/bin/python" -c "import trove_classifiers; print(*trove_classifiers.classifiers, sep='\n')")
tar -xOf "$scratch"/dist/*.tar.gz --wildcards '*/PKG-INFO' | sed -n 's/^Classifier: //p' | while read -r classifier; do
  grep -qxF "$classifier" <<<"$known" || die "the index has no classifier $classifier"
done
for archive in "$scratch"/dist/*; do
  tool pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$archive"
  [ "$("$scratch/tools/bin/bert-jax" --version)" = "bert-jax $version" ] || die "$archive is not version $version"
done
rm -rf dist
cp -r "$scratch/dist" dist
echo "dist/ holds version $version, which can be released:"
echo "  git tag $tag && git push origin $tag"
echo "  python -m twine upload dist/*"
