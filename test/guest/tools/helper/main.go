// Command helper runs inside the guest of the tests of the guest's tools: it sends packets
// of a known order, waits for what the tools tell, and shows what the kernel has.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/guesttools"
)

const (
	stateDir = "/run/joulevirt-guest"
	card     = "eth0"
	patience = 60 * time.Second
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Println("helper:", os.Args[1:], err)
		os.Exit(1)
	}
}

func run(verb string, args []string) error {
	switch verb {
	case "send":
		return send(args[0], args[1:])
	case "chat":
		return chat(args[0])
	case "await":
		return await(args[0])
	case "show":
		return show(args[0])
	case "confine":
		return confine(args)
	}
	return errors.New("no such verb")
}

// send sends packets with their number, one at a time: how many, how many a second, and
// before which one it tells that it is warm.
func send(address string, args []string) error {
	var numbers [3]int
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.Atoi(args[i]); err != nil {
			return err
		}
	}
	n, perSecond, warm := numbers[0], numbers[1], numbers[2]
	conn, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	start, packet := time.Now(), make([]byte, 32)
	for i := range n {
		// Spinning: a sleep would send several at once.
		for at := start.Add(time.Duration(i) * time.Second / time.Duration(perSecond)); time.Now().Before(at); {
		}
		if i == warm {
			fmt.Println("STEP warm")
		}
		binary.BigEndian.PutUint64(packet, uint64(i))
		if _, err := conn.Write(packet); err != nil {
			return err
		}
	}
	fmt.Println("SENT", n, "in", time.Since(start).Milliseconds(), "ms")
	return conn.Close()
}

// chat sends 4,000 packets a second, four at once, to who sends them back, for ever.
func chat(address string) error {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	for packet := make([]byte, 32); ; <-time.After(time.Millisecond) {
		for range 4 {
			if _, err := conn.Write(packet); err != nil {
				return err
			}
		}
	}
}

// await waits until the tools tell that the card's transmit half has a state, or that it
// defers its interrupts, and says how long it took.
func await(what string) error {
	start := time.Now()
	for {
		status, err := guesttools.ReadStatus(stateDir)
		if err == nil && len(status.Cards) == 1 &&
			(string(status.Cards[0].Transmit.State) == what || what == "Deferring" && status.Cards[0].Deferring) {
			fmt.Println("AWAITED", what, time.Since(start).Milliseconds(), "ms", status.Cards)
			return nil
		}
		if time.Since(start) > patience {
			return fmt.Errorf("it never came: %+v, %w", status, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// show tells what the kernel has of what the tools change.
func show(label string) error {
	link, err := netlink.LinkByName(card)
	if err != nil {
		return err
	}
	qdiscs, err := netlink.QdiscList(link)
	if err != nil {
		return err
	}
	var names []string
	for _, q := range qdiscs {
		names = append(names, fmt.Sprintf("%s,%x", q.Type(), q.Attrs().Handle>>16))
	}
	slices.Sort(names)
	fmt.Print("SHOW ", label, " ", strings.Join(names, "+"))
	for _, file := range []string{"napi_defer_hard_irqs", "gro_flush_timeout"} {
		text, err := os.ReadFile("/sys/class/net/" + card + "/" + file)
		if err != nil {
			return err
		}
		fmt.Print(" ", strings.TrimSpace(string(text)))
	}
	fmt.Println()
	return nil
}

// confine becomes another program, without the capabilities that the unit does not leave.
func confine(args []string) error {
	left := []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_BPF, unix.CAP_PERFMON}
	for c := range unix.CAP_LAST_CAP + 1 {
		if slices.Contains(left, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, args, os.Environ())
}
