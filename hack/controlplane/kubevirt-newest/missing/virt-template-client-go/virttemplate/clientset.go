// Package virttemplate has no client: virt-controller asks for one where the gate for templates
// is open.
package virttemplate

import (
	"errors"

	"k8s.io/client-go/rest"
)

type Clientset struct{}

func NewForConfig(*rest.Config) (*Clientset, error) {
	return nil, errors.New("this virt-controller is built without templates")
}

func (*Clientset) TemplateV1beta1() *TemplateV1beta1 { return nil }

type TemplateV1beta1 struct{}

func (*TemplateV1beta1) RESTClient() rest.Interface { return nil }
