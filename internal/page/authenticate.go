package page

import (
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/joulevirt/joulevirt/internal/cli/access"
)

// Authenticate returns a filter for the metrics server: the API server authenticates and
// authorizes whoever reads /metrics or the page. A token for the page must have one of the
// audiences.
func Authenticate(audiences []string) func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		filter, err := filters.WithAuthenticationAndAuthorization(config, client)
		if err != nil {
			return nil, err
		}
		return func(log logr.Logger, next http.Handler) (http.Handler, error) {
			filtered, err := filter(log, next)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, access.PagePath) {
					r = r.WithContext(authenticator.WithAudiences(r.Context(), audiences))
				}
				filtered.ServeHTTP(w, r)
			}), err
		}, nil
	}
}
