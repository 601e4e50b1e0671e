package shares

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	// source is what mounts of shares are named in /proc/mounts.
	source = "joulevirt-share"
	// inodes bound what many small files take beside their bytes: about 1 KiB each.
	inodes = 16384
)

// checkRoot returns why mounts in the folder of shares would not reach the node.
func checkRoot(root string) error {
	if info, err := os.Lstat(root); err != nil {
		return fmt.Errorf("folder of shares: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("folder of shares %s is no directory", root)
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return fmt.Errorf("read the mounts of the folder of shares: %w", err)
	}
	var above *procfs.MountInfo
	for _, m := range mounts {
		within := m.MountPoint == "/" || root == m.MountPoint || strings.HasPrefix(root, m.MountPoint+"/")
		if within && (above == nil || len(m.MountPoint) >= len(above.MountPoint)) {
			above = m
		}
	}
	if above == nil || above.OptionalFields["shared"] == "" {
		return fmt.Errorf("folder of shares %s is not on a shared mount, so the node would not get what is mounted there: mount it with mountPropagation Bidirectional", root)
	}
	return nil
}

// mountOnly mounts the wanted shares, by the names of their folders, and unmounts all others. What
// is there is read anew each time, so it goes on where a process that was killed ended.
func mountOnly(root string, wanted map[string]share, log logr.Logger) []error {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return []error{fmt.Errorf("read which shares are mounted: %w", err)}
	}
	mounted := map[string]bool{}
	for _, m := range mounts {
		if m.FSType == "tmpfs" && m.Source == source && filepath.Dir(m.MountPoint) == root {
			mounted[filepath.Base(m.MountPoint)] = true
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return []error{fmt.Errorf("read the folder of shares: %w", err)}
	}
	var problems []error
	for _, entry := range entries {
		folder := entry.Name()
		if _, is := wanted[folder]; is || !isUUID(folder) {
			continue
		}
		if err := unmount(filepath.Join(root, folder), mounted[folder]); err != nil {
			problems = append(problems, fmt.Errorf("unmount a share whose PersistentVolume is gone: %w; it is tried again", err))
			continue
		}
		log.Info("share unmounted", "folder", folder)
	}
	for folder, s := range wanted {
		if err := mount(filepath.Join(root, folder), s.bytes, mounted[folder]); err != nil {
			problems = append(problems, fmt.Errorf("mount PersistentVolume %s: %w; it is tried again", s.volume, err))
		} else if !mounted[folder] {
			log.Info("share mounted", "volume", s.volume, "bytes", s.bytes)
		}
	}
	return problems
}

// mount mounts a share unless it is mounted. Its folder of files appears last and at once: kubelet
// gives a volume to pods when it is there.
func mount(path string, bytes int64, mounted bool) error {
	if !mounted {
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=0755", bytes, inodes)
		if err := unix.Mount(source, path, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
			return fmt.Errorf("mount a tmpfs at %s: %w", path, err)
		}
	}
	files := filepath.Join(path, v1alpha1.ShareFiles)
	if _, err := os.Lstat(files); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made := filepath.Join(path, "made")
	if err := os.Mkdir(made, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return errors.Join(os.Chown(made, v1alpha1.ShareUser, v1alpha1.ShareUser), os.Chmod(made, 0o770|fs.ModeSetgid), os.Rename(made, files))
}

// unmount unmounts a share and removes its folder.
func unmount(path string, mounted bool) error {
	if mounted {
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.Remove(path)
}
