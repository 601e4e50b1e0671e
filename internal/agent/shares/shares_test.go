package shares

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	root       = v1alpha1.ShareRoot
	one, other = "0b5f9c1e-8a56-4c0d-9c62-2f6d4b1f7a10", "5d0f6d3a-3f0e-4f53-8e6a-96f0a7a9b001"
)

func volume(name, path string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.AnnotationShareNode: "mine"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
		},
	}
	if change != nil {
		change(v)
	}
	return v
}

func TestSharesOf(t *testing.T) {
	good := root + "/" + one + "/files"
	for name, test := range map[string]struct {
		volume   *corev1.PersistentVolume
		want     map[string]share
		problems int
	}{
		"ours":                  {volume: volume("a", good, nil), want: map[string]share{one: {"a", 64 << 20}}},
		"of another node":       {volume: volume("a", good, func(v *corev1.PersistentVolume) { v.Annotations[v1alpha1.AnnotationShareNode] = "other" })},
		"of no node":            {volume: volume("a", good, func(v *corev1.PersistentVolume) { v.Annotations = nil })},
		"being deleted":         {volume: volume("a", good, func(v *corev1.PersistentVolume) { v.DeletionTimestamp = &metav1.Time{Time: time.Now()} })},
		"without a size":        {volume: volume("a", good, func(v *corev1.PersistentVolume) { v.Spec.Capacity = nil }), problems: 1},
		"of another kind":       {volume: volume("a", good, func(v *corev1.PersistentVolume) { v.Spec.Local = nil }), problems: 1},
		"the root itself":       {volume: volume("a", root+"/files", nil), problems: 1},
		"not below the root":    {volume: volume("a", "/etc/"+one+"/files", nil), problems: 1},
		"out of the root":       {volume: volume("a", root+"/../"+one+"/files", nil), problems: 1},
		"by way of another":     {volume: volume("a", root+"/"+other+"/../"+one+"/files", nil), problems: 1},
		"deeper":                {volume: volume("a", root+"/"+other+"/"+one+"/files", nil), problems: 1},
		"the whole file system": {volume: volume("a", root+"/"+one, nil), problems: 1},
		"a name that is no UID": {volume: volume("a", root+"/precious/files", nil), problems: 1},
		"another spelling":      {volume: volume("a", root+"/{"+one+"}/files", nil), problems: 1},
	} {
		got, problems := sharesOf([]any{test.volume}, Options{Node: "mine", Root: root})
		if test.want == nil {
			test.want = map[string]share{}
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(share{})); diff != "" || len(problems) != test.problems {
			t.Errorf("%s: %v, -want +got:\n%s", name, problems, diff)
		}
	}
}
