#!/bin/sh
# Builds a Debian package of the broker and its service:
#
#     deploy/debian/build.sh OUTPUT PIP-ARGUMENT...       OUTPUT is a directory
#     deploy/debian/build.sh dist .                       of this checkout
#     deploy/debian/build.sh dist --find-links dist 'ottla[security]'
#
# The packages of Python are in /usr/lib/ottla: it uses Debian's interpreter and none of Debian's Python packages. The
# package is for the Python version that builds it. PYTHON names another interpreter, and OTTLA_SITE a directory with the
# installed packages, in which case pip is not called.
set -eu
output=$1
shift
here=$(dirname "$0")
python=${PYTHON:-python3}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"

mkdir -p "$tree/usr/lib" "$tree/usr/bin" "$tree/DEBIAN" "$tree/usr/share/doc/ottla" "$output"
if [ -n "${OTTLA_SITE:-}" ]; then
    cp -r "$OTTLA_SITE" "$tree/usr/lib/ottla"
else
    "$python" -m pip install --quiet --no-compile --target "$tree/usr/lib/ottla" "$@"
fi
rm -rf "$tree/usr/lib/ottla/bin"
minor=$("$python" -c 'import sys; print(sys.version_info[1])')
version=$(PYTHONPATH="$tree/usr/lib/ottla" "$python" -B -c 'import ottla; print(ottla.__version__)')

cat > "$tree/usr/bin/ottla" <<'PROGRAM'
#!/bin/sh
PYTHONPATH=/usr/lib/ottla${PYTHONPATH:+:$PYTHONPATH} exec /usr/bin/python3 -m ottla "$@"
PROGRAM
chmod 755 "$tree/usr/bin/ottla"
PYTHONPATH="$tree/usr/lib/ottla" "$python" -B -m ottla service install --root "$tree" --program /usr/bin/ottla > /dev/null
mkdir -p "$tree/usr/lib/systemd/system" "$tree/usr/lib/sysusers.d"
mv "$tree/etc/systemd/system/ottla.service" "$tree/usr/lib/systemd/system/"
mv "$tree/etc/sysusers.d/ottla.conf" "$tree/usr/lib/sysusers.d/"
rm -r "$tree/etc/systemd" "$tree/etc/sysusers.d"
cp "$here/../../LICENSE" "$tree/usr/share/doc/ottla/copyright"

cat > "$tree/DEBIAN/control" <<CONTROL
Package: ottla
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: The Ottla authors <ottla@invalid>
Depends: python3 (>= 3.$minor~), python3 (<< 3.$((minor + 1))~), libstdc++6
Recommends: systemd
Section: net
Priority: optional
Description: Kafka-compatible streaming platform
 A broker that speaks Kafka's protocol and uses Kafka's file format, its
 clients for Python, and a command line for any Kafka cluster.
CONTROL
echo /etc/ottla/server.properties > "$tree/DEBIAN/conffiles"
cat > "$tree/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
if [ "$1" = configure ] && command -v systemd-sysusers > /dev/null; then
    systemd-sysusers ottla.conf
    chgrp ottla /etc/ottla/server.properties
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # An upgrade restarts a running broker; the first installation starts none.
    [ -z "${2:-}" ] || systemctl try-restart ottla.service
fi
POSTINST
cat > "$tree/DEBIAN/prerm" <<'PRERM'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now ottla.service
fi
PRERM
chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm"
find "$tree/usr" -name __pycache__ -prune -exec rm -rf {} +
dpkg-deb --root-owner-group ${DPKG_DEB_OPTIONS:-} --build "$tree" "$output/ottla_${version}_$(dpkg --print-architecture).deb"
