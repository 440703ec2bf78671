# Serves one connection, on stdin and stdout, with an account that exists in here alone. The caller has left the
# mounts behind. Usage: PLACE RELAY CODEX SSHD CONFIGURATION
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
place=$1 relay=$2 codex=$3 sshd=$4 configuration=$5
mount --bind "$place/passwd" /etc/passwd
mount --bind "$place/group" /etc/group
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd
# What the account may reach, wherever it is on this machine.
mount -t tmpfs -o mode=755 tmpfs /srv
mkdir /srv/home /srv/codex
: >/srv/codex-relay
mount --bind "$place/home" /srv/home
mount --bind "$codex" /srv/codex
mount --bind "$relay" /srv/codex-relay
exec "$sshd" -i -e -f "$configuration"
