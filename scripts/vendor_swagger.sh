#!/bin/sh
# Fetch the pinned Swagger UI from npm and keep what /docs needs, gzipped, in the package. Needs npm.
# To take a newer one: change VERSION, run, look at /docs in a browser, commit.
set -eu

VERSION=5.35.0
TARGET=$(cd "$(dirname "$0")/.." && pwd)/src/onbudget/web/swagger
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

cd "$WORK"
npm pack --silent "swagger-ui-dist@$VERSION" >/dev/null # packs only: no install script of its dependency runs
tar xzf ./*.tgz

mkdir -p "$TARGET"
for file in swagger-ui-bundle.js swagger-ui.css; do
    gzip -9nc "package/$file" >"$TARGET/$file.gz.part"
    mv "$TARGET/$file.gz.part" "$TARGET/$file.gz"
done
cp package/LICENSE package/NOTICE package/swagger-ui-bundle.js.LICENSE.txt "$TARGET/"
{
    echo "swagger-ui-dist $VERSION from npm, Apache-2.0. Fetched by scripts/vendor_swagger.sh; sha256 before gzip:"
    (cd package && sha256sum swagger-ui-bundle.js swagger-ui.css)
} >"$TARGET/SOURCE.txt"
cat "$TARGET/SOURCE.txt"
