# Runs a codex on a machine of its own, as far as the kernel can make one: the caller has left the network, the
# processes and the mounts behind, and this changes the root. Usage: ROOT CODEX BUSYBOX ARGUMENT...
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
root=$1 codex=$2 busybox=$3
shift 3
mount --bind "$root" "$root"
here() {
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    mount -o remount,bind,ro "$root$2"
}
for folder in /usr /bin /sbin /lib /lib32 /lib64; do
    [ ! -e "$folder" ] || here "$folder" "$folder"
done
here "$codex" /opt/codex
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/etc" "$root/work" "$root/codex"
echo 'root:x:0:0:root:/work:/bin/sh' >"$root/etc/passwd"
# Nobody answers for names there: the exec-server looks up its own.
echo "127.0.0.1 localhost $(uname -n)" >"$root/etc/hosts"
mount -t proc proc "$root/proc"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
"$busybox" ip link set lo up
# Not chroot: who is in one may make no user namespaces, which codex's own sandbox is made of.
mkdir "$root/before"
cd "$root"
pivot_root . before
umount -l /before
rmdir /before
exec /usr/bin/env -i CODEX_HOME=/codex /opt/codex/bin/codex "$@"
