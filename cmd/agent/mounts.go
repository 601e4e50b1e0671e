package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// makeReadOnly makes a folder with all that is mounted below it read-only for this container: runtimes
// that do not know recursive read-only mounts, such as containerd before 2.0, leave what is below
// writable. node is the link of the node's mount namespace, whose mounts stay as they are.
func makeReadOnly(folder, node string) error {
	ours, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	nodes, err := os.Readlink(node)
	if err != nil {
		return fmt.Errorf("mount namespace of the node: %w", err)
	}
	if ours == nodes {
		return nil
	}
	readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, folder, unix.AT_RECURSIVE, readOnly); err != nil {
		return fmt.Errorf("make %s read-only with all below: %w", folder, err)
	}
	return nil
}
