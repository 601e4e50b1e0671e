#!/bin/busybox sh
# The first process of a guest that runs programs and ends: load the drivers,
# run what is to be run, tell how it went on the console, power off.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mount -t cgroup2 cgroup /sys/fs/cgroup
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
ulimit -c 0

while read -r module; do insmod "/modules/$module" || echo "insmod $module failed"; done < /modules/order
ip link set lo up

sh /run.sh
echo "EXIT $?"
poweroff -f
