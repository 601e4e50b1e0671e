package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/guest/reply"
)

const (
	poolSpan     = 15 * time.Second
	poolPatience = 2 * time.Second
	// poolAsked is what the network VM is asked each second, all the time.
	poolAsked = 200
)

// measurePools lets a network VM answer beside two compute VMs that are never idle
// and weigh twenty times as much each, with pools and slices by the real manager and
// agent, and without, in the order ABBA.
func measurePools(ctx context.Context, env environment) (figures []figure, err error) {
	s, err := startVMStage(ctx, env, v1alpha1.LeverAffinity, v1alpha1.LeverSlice)
	if s != nil {
		defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return nil, err
	}
	web, err := s.start(ctx, s.VM(stageNamespace, "web", 1), v1alpha1.AffinityAuto)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"sums-a", "sums-b"} {
		vm := s.VM(stageNamespace, name, 1)
		vm.Spec.Template.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		sums, err := s.start(ctx, vm, v1alpha1.AffinityAuto)
		if err == nil {
			err = sums.GuestBurn(ctx, 1, burnSeconds)
		}
		if err != nil {
			return nil, err
		}
	}
	asker, err := reply.Start(reply.Options{Address: net.JoinHostPort(web.IP(), "7"), PerSecond: poolAsked, Patience: poolPatience})
	if err != nil {
		return nil, err
	}
	defer asker.Stop()
	with, without, err := s.comparePools(ctx, env, asker)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(env.progress, "bench: a network VM beside two compute VMs: with pools %v; without %v\n", with, without)
	const p95 = 0.95
	return []figure{{"pool_reply_p95_ratio", float64(with.Percentile(p95)) / float64(without.Percentile(p95)), "with over without"}}, nil
}

// comparePools measures without, with, with and without pools.
func (s *vmStage) comparePools(ctx context.Context, env environment, asker *reply.Asker) (with, without reply.Result, err error) {
	span := func(sum *reply.Result, what string) error {
		r, err := asker.During(ctx, poolSpan)
		fmt.Fprintf(env.progress, "bench: %s pools: %v\n", what, r)
		*sum = reply.Join(*sum, r)
		return err
	}
	divided := func(plan *v1alpha1.NodePlan) error {
		if plan.Spec.Pools == nil {
			return fmt.Errorf("pools share their cores: %+v", plan.Spec.VMs)
		}
		return nil
	}
	const all = 3
	for _, step := range []func() error{
		func() error { return s.setMode(ctx, v1alpha1.ModeObserve, 0, anyPlan) },
		func() error { return span(&without, "without") },
		func() error { return s.setMode(ctx, v1alpha1.ModeEnforce, all, divided) },
		func() error { return span(&with, "with") },
		func() error { return span(&with, "with") },
		func() error { return s.setMode(ctx, v1alpha1.ModeObserve, 0, anyPlan) },
		func() error { return span(&without, "without") },
	} {
		if err := step(); err != nil {
			return with, without, err
		}
	}
	return with, without, nil
}
