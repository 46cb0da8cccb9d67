# Runs a command as the first process of a container that `unshare --mount --pid --fork` has begun: a read-only root,
# no rights, no way to get any. Arguments: the image's root, a folder to mount it at, user:group, a folder for the state,
# a file with more mounts (FROM TO on each line), then the command. Everything mounted here goes with the process.
set -eu

image=$1 root=$2 user=$3 state=$4 mounts=$5
shift 5

mount --bind "$image" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777,size=256m tmpfs "$root/tmp"
mount -t tmpfs -o mode=755,size=64k tmpfs "$root/dev"
for device in null zero full random urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir -m 1777 "$root/dev/shm"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/dev/shm"
mount --bind "$state" "$root/var/lib/stream-learner"
while read -r from to; do
    mount --bind "$from" "$root$to"
    mount -o remount,bind,ro "$root$to"
done <"$mounts"

exec setpriv --no-new-privs --bounding-set=-all,+setuid,+setgid,+sys_chroot \
    chroot --userspec="$user" --groups= "$root" "$@"
