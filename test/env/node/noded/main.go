// Command noded starts the namespaces of a node, is the first process in them,
// and starts programs there:
//
//	noded start CONFIG            on the machine: the node lives as long as this process
//	noded init CONFIG             in the namespaces: mounts, then reaps orphans
//	noded enter CONFIG PROGRAM... on the machine: runs a program in the node
//	noded boot CONFIG             in an emulated machine: mounts, network, then reaps orphans
//	noded serve CONFIG            in an emulated machine: runs what enter asks for
package main

import (
	"fmt"
	"os"

	"github.com/joulevirt/joulevirt/test/env/node/internal/sandbox"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "noded:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: noded start|init|enter|boot|serve CONFIG [PROGRAM ...]")
	}
	if args[0] == "boot" {
		return sandbox.Boot(args[1]) // there is no file yet
	}
	config, err := sandbox.ReadConfig(args[1])
	if err != nil {
		return err
	}
	switch args[0] {
	case "start":
		return sandbox.Start(config)
	case "init":
		return sandbox.Init(config)
	case "enter":
		return sandbox.Enter(config, args[2:])
	case "serve":
		return sandbox.Serve(config)
	}
	return fmt.Errorf("unknown command %q: want start, init, enter, boot or serve", args[0])
}
