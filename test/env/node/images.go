package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/env/images"
	"github.com/joulevirt/joulevirt/test/env/node/internal/sandbox"
	"github.com/joulevirt/joulevirt/test/internal/filelock"
)

// snapshots is where containerd keeps unpacked layers below its root.
const snapshots = "io.containerd.snapshotter.v1.overlayfs/snapshots"

// imageStore is the root folder of a containerd that has imported images and
// ended. Nodes copy it but for the unpacked layers, which are only read: so a
// node has its images at once. It is in the cache, by the images' digests.
type imageStore struct {
	dir  string
	lock *os.File
	// base is the store that was there before: it has the layers of its images. May be nil.
	base *imageStore
}

// name is the store's, and its folder's below sandbox.Run.
func (s *imageStore) name() string { return filepath.Base(s.dir) }

// all returns the store and those that it is based on.
func (s *imageStore) all() (stores []*imageStore) {
	for ; s != nil; s = s.base {
		stores = append(stores, s)
	}
	return stores
}

// ensureImages builds the images of nodes that are missing.
func (e *Environment) ensureImages(ctx context.Context) error {
	set, err := images.Ensure(ctx, e.options.Cluster.Binaries, images.Parts{Product: e.options.Product, Gateway: e.options.Gateway})
	if err != nil {
		return err
	}
	e.set = set
	if e.images, err = e.unpackImages(ctx, []images.Image{set.Pause, set.Tools, set.Guest, set.KubeVirt}); err != nil || !e.options.Product {
		return err
	}
	// Apart: they change with each change of the product.
	product := []images.Image{set.Manager, set.Agent}
	if e.options.Gateway {
		product = append(product, set.Gateway)
	}
	e.images, err = e.unpackImages(ctx, product)
	return err
}

// unpackImages returns a store with more images than there are, making it when it is not there.
func (e *Environment) unpackImages(ctx context.Context, more []images.Image) (*imageStore, error) {
	hash := sha256.New()
	if e.images != nil {
		made, err := os.Stat(e.images.dir)
		if err != nil {
			return nil, fmt.Errorf("find the images that others are added to: %w", err)
		}
		fmt.Fprintln(hash, e.images.name(), made.ModTime()) // another one has its layers elsewhere
	}
	fmt.Fprintln(hash, e.containerdConfig())
	for _, image := range more {
		fmt.Fprintln(hash, image.Digest)
	}
	cache := e.options.Cluster.Binaries.Cache
	store := &imageStore{dir: filepath.Join(cache, storePrefix+hex.EncodeToString(hash.Sum(nil))[:12]), base: e.images}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	var err error
	if store.lock, err = os.OpenFile(store.dir+".lock", os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, fmt.Errorf("open the lock of the images: %w", err)
	}
	now := time.Now()
	if err := os.Chtimes(store.lock.Name(), now, now); err != nil {
		return nil, fmt.Errorf("mark the images as used: %w", err)
	}
	// Who uses the store shares the lock; the kernel drops it with the process.
	if err := unix.Flock(int(store.lock.Fd()), unix.LOCK_SH); err != nil {
		return nil, fmt.Errorf("lock %s: %w", store.lock.Name(), err)
	}
	if err := e.ensureStore(ctx, store.dir, more); err != nil {
		return nil, errors.Join(err, store.lock.Close())
	}
	return store, nil
}

// ensureStore makes a store that is not there. Another lock than that of users, who keep theirs
// as long as their environment, lets one process at a time do so.
func (e *Environment) ensureStore(ctx context.Context, dir string, more []images.Image) error {
	if exists(dir) {
		return nil
	}
	reporter := e.options.Cluster.Binaries.Steps
	unlock, err := filelock.Take(ctx, dir+".unpack", func() {
		reporter.Printf("setup: another process unpacks the images of nodes: waiting")
	})
	if err != nil {
		return err
	}
	defer unlock()
	if exists(dir) {
		return nil
	}
	err = reporter.Run("unpack the images of nodes", func(io.Writer) error { return e.fillStore(ctx, dir, more) })
	if err == nil {
		removeOldStores(filepath.Dir(dir), dir)
	}
	return err
}

const storePrefix = "node-images-"

// fillStore has a containerd in a sandbox of its own import the images.
func (e *Environment) fillStore(ctx context.Context, dir string, more []images.Image) error {
	staged := dir + ".tmp"
	if err := os.RemoveAll(staged); err != nil {
		return fmt.Errorf("remove what an earlier import left: %w", err)
	}
	defer os.RemoveAll(staged)
	n := e.describeNode("images", 0, NodeOptions{}, more)
	n.sandbox.Dir = staged // a rename must lead to the cache
	if err := n.boot(ctx); err != nil {
		return fmt.Errorf("unpack the images: %w", err)
	}
	// Layers that are unpacked are not needed, and nodes would copy them.
	if _, err := n.Run(ctx, Program("ctr"), "--namespace=k8s.io", "content", "prune", "references"); err != nil {
		return err
	}
	n.Kill()
	if err := os.Rename(n.containerdRoot(), dir); err != nil {
		return fmt.Errorf("put the unpacked images into the cache: %w", err)
	}
	return nil
}

// unusedFor is how long what another test, or another clone, may use again is kept.
const unusedFor = time.Hour

// removeOldStores removes stores of other images that nobody uses, or used lately.
func removeOldStores(cache, current string) {
	locks, _ := filepath.Glob(filepath.Join(cache, storePrefix+"*.lock"))
	for _, path := range locks {
		dir := strings.TrimSuffix(path, ".lock")
		if info, err := os.Stat(path); dir == current || err != nil || time.Since(info.ModTime()) < unusedFor {
			continue
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = file.Close()
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// copyTo makes a containerd's root with all images of the store. Unpacked
// layers are links to where nodes see the store.
func (s *imageStore) copyTo(target string) error {
	return filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}
		switch {
		case entry.Type() == fs.ModeSymlink: // to a layer of the base
			to, err := os.Readlink(path)
			return errors.Join(err, os.Symlink(to, filepath.Join(target, name)))
		case filepath.Dir(name) == snapshots:
			if err := os.Symlink(filepath.Join(sandbox.Run, s.name(), name), filepath.Join(target, name)); err != nil {
				return err
			}
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(target, name), 0o700)
		case entry.Type().IsRegular():
			return copyFile(path, filepath.Join(target, name))
		}
		return nil
	})
}

func copyFile(source, target string) error {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(target, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// importImages imports an archive that the node sees.
func (n *Node) importImages(ctx context.Context, path string) error {
	_, err := n.Run(ctx, Program("ctr"), "--namespace=k8s.io", "images", "import", "--local", "--discard-unpacked-layers", path)
	return err
}
