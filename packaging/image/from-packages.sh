#!/usr/bin/env bash
# Makes the image where no registry of images is reached: from packages of Debian and of PyPI.
#
#   packaging/image/from-packages.sh FOLDER
#
# leaves FOLDER/root (the root file system) and, where buildah is installed, FOLDER/ledgermq.tar.gz
# (an OCI archive: `docker load -i`, `podman load -i`). Needs Debian with mmdebstrap and binutils,
# root, and a Python of Debian's version (3.11) at PYTHON, by default python3.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
python=${PYTHON:-python3}
release=bookworm
version=3.11
root=$folder/root

found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ "$found" != "$version" ]; then
  echo "$python is Python $found, Debian $release has $version: set PYTHON" >&2
  exit 1
fi

rm -rf "$root" "$folder/wheels"
echo "wheels"
"$python" -m pip wheel --quiet --disable-pip-version-check -c "$source/constraints.txt" \
  -w "$folder/wheels" "$source"

echo "base"
packages=(base-files ca-certificates netbase tzdata "python$version-minimal"
  "libpython$version-stdlib" libstdc++6)
mmdebstrap --quiet --variant=extract --include="$(IFS=,; echo "${packages[*]}")" \
  "$release" "$root"
# Nothing here runs as another user or installs anything.
rm -rf "$root"/usr/share/{doc,man,info,locale,lintian} "$root"/var/{cache,log,lib/apt,lib/dpkg}/*
ln -s "python$version" "$root/usr/bin/python3"
cat > "$root/etc/passwd" <<'PASSWD'
root:x:0:0:root:/:/usr/sbin/nologin
ledgermq:x:10001:10001::/data:/usr/sbin/nologin
PASSWD
printf 'root:x:0:\nledgermq:x:10001:\n' > "$root/etc/group"
cat "$root"/usr/share/ca-certificates/mozilla/*.crt > "$root/etc/ssl/certs/ca-certificates.crt"

echo "program"
program=$root/opt/ledgermq
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-compile \
  --find-links "$folder/wheels" --target "$program/lib" ledgermq
# What nobody runs here: programs of other packages, protocols that a broker does not speak, tests,
# pages of manuals, tables of other character sets, symbols of debuggers.
rm -rf "$program"/lib/{bin,twisted/conch,twisted/mail,twisted/names,twisted/words}
rm -rf "$root"/usr/lib/python"$version"/{pydoc_data,lib2to3,idlelib,ensurepip}
rm -rf "$root"/usr/lib/*/gconv "$root"/usr/share/zoneinfo/{right,posix}
find "$root" -name '*.so*' -type f -exec strip --strip-unneeded {} + 2>/dev/null || true
find "$program/lib" -type d \( -name tests -o -name test \) -not -path "$program/lib/ledgermq/*" \
  -prune -exec rm -rf {} +
mkdir -p "$program/bin" "$root/usr/lib/python3/dist-packages" "$root/data" "$root/tmp"
echo /opt/ledgermq/lib > "$root/usr/lib/python3/dist-packages/ledgermq.pth"
cat > "$program/bin/ledgermq" <<'PROGRAM'
#!/usr/bin/python3
import sys

from ledgermq.cli.main import main

sys.exit(main())
PROGRAM
chmod 0755 "$program/bin/ledgermq"
chown 10001:10001 "$root/data" && chmod 0700 "$root/data" && chmod 1777 "$root/tmp"
chroot "$root" /usr/bin/python3 -m compileall -q -j 2 "/usr/lib/python$version" /opt/ledgermq/lib
du -sm "$root" | awk '{print $1 " MB, unpacked"}'

if ! command -v buildah >/dev/null; then
  echo "no image: buildah is not installed"
  exit 0
fi
echo "image"
storage=(--root "$folder/storage" --runroot "$folder/run" --storage-driver vfs)
rm -f "$folder"/ledgermq.tar*
container=$(buildah "${storage[@]}" from scratch)
buildah "${storage[@]}" copy --quiet "$container" "$root" / >/dev/null
buildah "${storage[@]}" config --user 10001:10001 --workingdir /data --volume /data \
  --port 9876 --port 10911 --port 40911 --port 8080 --stop-signal SIGTERM \
  --env PATH=/opt/ledgermq/bin:/usr/bin --entrypoint '["ledgermq"]' \
  --cmd '["up","--nodes","1","--data","/data/up"]' \
  --label org.opencontainers.image.title=LedgerMQ \
  --label org.opencontainers.image.licenses=Apache-2.0 "$container"
buildah "${storage[@]}" commit --quiet "$container" "oci-archive:$folder/ledgermq.tar:ledgermq" \
  >/dev/null
buildah "${storage[@]}" rm "$container" >/dev/null
gzip -9 "$folder/ledgermq.tar"
rm -rf "$folder/storage" "$folder/run"
du -m "$folder/ledgermq.tar.gz" | awk '{print $1 " MB, packed"}'
