// Package shares mounts a file system in the node's memory for each PersistentVolume that is the
// share of a VM on this node.
package shares

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/kube"
)

// retry is when what failed is tried again, such as to unmount what is busy.
const retry = 5 * time.Second

// share is a file system to mount.
type share struct {
	// volume is the name of its PersistentVolume.
	volume string
	bytes  int64
}

// Options say which shares are mounted.
type Options struct {
	// Node is the name of this node.
	Node string
	// Root is the folder of the node's shares.
	Root string
	Log  logr.Logger
}

// Run mounts the shares of this node, and unmounts those whose volume is gone, until the context
// ends. Shares stay mounted then.
func Run(ctx context.Context, client *kube.Client, o Options) error {
	if err := checkRoot(o.Root); err != nil {
		return err
	}
	informer := cache.NewSharedInformer(client.ListWatch(kube.Selection{
		Path: "/api/v1/persistentvolumes", Labels: v1alpha1.LabelShare + "=true",
	}), &corev1.PersistentVolume{}, 0)
	changes := make(chan struct{}, 1)
	signal := func(object any) {
		if deleted, is := object.(cache.DeletedFinalStateUnknown); is {
			object = deleted.Obj
		}
		if volume, is := object.(*corev1.PersistentVolume); is && volume.Annotations[v1alpha1.AnnotationShareNode] == o.Node {
			select {
			case changes <- struct{}{}:
			default: // the signal that waits stands for this one too
			}
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: signal, UpdateFunc: func(_, now any) { signal(now) }, DeleteFunc: signal})
	if err != nil {
		return fmt.Errorf("watch PersistentVolumes: %w", err)
	}
	go informer.RunWithContext(ctx)
	// Before the volumes are known, nothing is known to be gone.
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	o.Log.Info("mounting the shares of VMs", "root", o.Root)
	for {
		wanted, ignored := sharesOf(informer.GetStore().List(), o)
		failed := mountOnly(o.Root, wanted, o.Log)
		for _, problem := range append(ignored, failed...) {
			o.Log.Error(problem, "share")
		}
		var again <-chan time.Time
		if len(failed) > 0 {
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		case <-again:
		}
	}
}

// sharesOf returns the shares of this node by the names of their folders, and what is wrong with
// others. A volume that is being deleted has none: pods that use it have mounts of their own.
func sharesOf(volumes []any, o Options) (map[string]share, []error) {
	shares, problems := map[string]share{}, []error(nil)
	for _, object := range volumes {
		volume, is := object.(*corev1.PersistentVolume)
		if !is || volume.Annotations[v1alpha1.AnnotationShareNode] != o.Node || volume.DeletionTimestamp != nil {
			continue
		}
		folder, err := folderOf(volume, o.Root)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		shares[folder] = share{volume: volume.Name, bytes: volume.Spec.Capacity.Storage().Value()}
	}
	return shares, problems
}

// folderOf returns the name of a volume's folder below the root.
func folderOf(volume *corev1.PersistentVolume, root string) (string, error) {
	path := ""
	if volume.Spec.Local != nil {
		path = volume.Spec.Local.Path
	}
	folder := filepath.Base(filepath.Dir(path))
	switch {
	case !isUUID(folder) || path != filepath.Join(root, folder, v1alpha1.ShareFiles):
		return "", fmt.Errorf("PersistentVolume %s: spec.local.path is %q, and nothing is mounted for it: want %s/UUID/%s", volume.Name, path, root, v1alpha1.ShareFiles)
	case volume.Spec.Capacity.Storage().Sign() <= 0: // a file system without a limit
		return "", fmt.Errorf("PersistentVolume %s: spec.capacity.storage is %s, and nothing is mounted for it: want more than 0", volume.Name, volume.Spec.Capacity.Storage())
	}
	return folder, nil
}

// isUUID returns whether a text is a UID as Kubernetes writes it.
func isUUID(text string) bool {
	id, err := uuid.Parse(text)
	return err == nil && id.String() == text
}
