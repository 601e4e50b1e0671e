#!/bin/busybox sh
# The guest's first process: load the drivers, take name and network from the kernel
# command line (guest.name=, guest.address=, guest.gateway=), become the server.
# An address on the command line costs no DHCP exchange at boot.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/bin
ulimit -c 0

while read -r module; do insmod "/modules/$module" || echo "insmod $module failed"; done < /modules/order

option() { sed -n "s/.*$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
hostname "$(option guest.name)"
ip link set lo up
ip link set eth0 up
ip address add "$(option guest.address)" dev eth0
ip route add default via "$(option guest.gateway)"

# As process 1, so that its death ends the VM visibly instead of leaving a
# guest that answers nothing.
exec /bin/guestd
