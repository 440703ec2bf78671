# Runs a command with little room for one folder, whose config.toml it keeps. Usage: FOLDER COMMAND...
set -eu
folder=$1
shift
config=$(cat "$folder/config.toml")
mount -t tmpfs -o size=16m tmpfs "$folder"
printf '%s\n' "$config" >"$folder/config.toml"
exec "$@"
