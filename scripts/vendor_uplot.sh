#!/bin/sh
# Fetch the pinned uPlot from npm and keep what the tuner's page inlines, gzipped, in the package. Needs npm.
# To take a newer one: change VERSION, run, look at a page of `onbudget tune --report` in a browser, commit.
set -eu

VERSION=1.6.32
TARGET=$(cd "$(dirname "$0")/.." && pwd)/src/onbudget/web/uplot
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

cd "$WORK"
npm pack --silent "uplot@$VERSION" >/dev/null # packs only: nothing of it runs
tar xzf ./*.tgz

mkdir -p "$TARGET"
for file in uPlot.iife.min.js uPlot.min.css; do
    gzip -9nc "package/dist/$file" >"$TARGET/$file.gz.part"
    mv "$TARGET/$file.gz.part" "$TARGET/$file.gz"
done
cp package/LICENSE "$TARGET/"
{
    echo "uplot $VERSION from npm, MIT. Fetched by scripts/vendor_uplot.sh; sha256 before gzip:"
    (cd package/dist && sha256sum uPlot.iife.min.js uPlot.min.css)
} >"$TARGET/SOURCE.txt"
cat "$TARGET/SOURCE.txt"
