package main

import (
	"context"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/internal/version"
)

// renewDeadline is the controller runtime's: a request for the Lease may take half of it.
const renewDeadline = 10 * time.Second

// leadership returns the managers' Lease, and what makes clients that write only while this
// manager holds it. Without leader election there is neither.
func leadership(config *rest.Config, o *options) (resourcelock.Interface, client.NewClientFunc, error) {
	if !o.leaderElect {
		return nil, client.New, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("name this manager: %w", err)
	}
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	// Each remembers the Lease as it saw it last: the fence has one of its own.
	var locks [2]resourcelock.Interface
	for i := range locks {
		locks[i], err = resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.namespace, leaseName, identity, config, renewDeadline)
		if err != nil {
			return nil, nil, fmt.Errorf("make a client of Lease %s/%s: %w", o.namespace, leaseName, err)
		}
	}
	if lock, ok := locks[0].(*resourcelock.LeaseLock); ok {
		lock.Client = controllers.VersionedLeases(lock.Client, version.String())
	}
	fence := &controllers.Fence{Identity: identity.Identity, Clock: clock.RealClock{}, Holder: func(ctx context.Context) (string, error) {
		record, _, err := locks[1].Get(ctx)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		return record.HolderIdentity, nil
	}}
	newClient := func(config *rest.Config, options client.Options) (client.Client, error) {
		c, err := client.New(config, options)
		if err != nil {
			return nil, err
		}
		return controllers.Fenced(c, fence), nil
	}
	return locks[0], newClient, nil
}
