# Runs a command where an administrator has put a file into /etc/codex. Usage: FOLDER FILE COMMAND...
# FOLDER takes a copy of /etc, which the command sees in its place.
set -eu
folder=$1 file=$2
shift 2
mount --make-rprivate /
cp -a /etc/. "$folder"
mkdir -p "$folder/codex"
cp "$file" "$folder/codex"
mount --bind "$folder" /etc
exec "$@"
