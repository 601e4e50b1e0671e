#!/bin/busybox sh
# The guest of the tests: it runs the tools as their unit would, and tells each step on
# the console.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mkdir -p /run /tmp /usr/local/bin
/bin/busybox --install -s /bin
export PATH=/bin
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
while read -r module; do insmod "/modules/$module" || echo "insmod $module failed"; done < /modules/order
ip link set lo up
ip link set eth0 up
ip address add 10.77.0.2/24 dev eth0

tools() { helper confine joulevirt-guest "$@"; }
start() { helper confine joulevirt-guest --max-window=1ms & pid=$!; }
step() { echo "STEP $1"; }
send() { helper send 10.77.0.1:9000 "$1" 4000 "$2"; }
fail() { echo "FAILED"; poweroff -f; }

ping -c 1 -W 20 10.77.0.1 > /dev/null || fail
helper show untouched || fail
step baseline
sleep 1 # the test counts kicks from here on, and may be late
send 2000 0 || fail

step held
start
helper await InForce || fail
helper show held || fail
step sending
send 5500 2500 || fail
step sent

# The host's agent is gone.
step lapse
helper await NotAllowed || fail
helper show lapsed || fail
step renew
helper await InForce || fail

# Packets come fast, and the tools die. Other tools put all back.
step receive
helper chat 10.77.0.1:9002 &
helper await Deferring || fail
helper show deferring || fail
kill -9 $pid
wait $pid 2> /dev/null
helper show dead || fail
tools restore || fail
helper show restored || fail

start
helper await Deferring || fail
helper show again || fail
kill -9 $pid
wait $pid 2> /dev/null
helper confine joulevirt-guest --max-window=0 & pid=$!
helper await Declined || fail
helper show successor || fail
kill -TERM $pid
wait $pid || fail

start
helper await Deferring || fail
kill -TERM $pid
wait $pid || fail
helper show terminated || fail
step end
poweroff -f
