#!/bin/sh
# The first program of the virtual machine: makes a file system out of the host's, which it cannot change, and goes on in it.
fail() {
  echo "boot.sh: $1"
  /bin/busybox poweroff -f
}
/bin/busybox --install -s /bin
mkdir -p /proc /lower /new
mount -t proc proc /proc
while read -r module; do
  insmod "/modules/$module" || fail "cannot load $module"
done </modules/order
nine=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o "$nine,cache=loose,ro" host /lower || fail "cannot mount the host's files"
mount -t tmpfs tmpfs /new
mkdir -p /new/upper /new/work /new/root
layers=lowerdir=/lower,upperdir=/new/upper,workdir=/new/work
mount -t overlay -o "$layers" overlay /new/root || fail "cannot lay a layer over the host's files"
cd /new/root || fail "there is no root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t devtmpfs devtmpfs dev
mkdir -p dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t devpts devpts dev/pts
mount -t tmpfs tmpfs run
mkdir -p sys/fs/cgroup share
mount -t cgroup2 -o nsdelegate cgroup2 sys/fs/cgroup || fail "cannot mount cgroups of version 2"
mount -t 9p -o "$nine" share share || fail "cannot mount the folder for results"
ip link set lo up
ip link set eth0 up && ip addr add 10.0.2.15/24 dev eth0 || fail "there is no network"
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
umount /proc
exec switch_root /new/root /usr/bin/python3 -u /share/guest.py
