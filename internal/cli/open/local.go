package open

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"net/http/httputil"
	"net/url"
)

const (
	keyName    = "key"
	cookieName = "joulevirt-page-key"
)

// Local serves the page on this machine, to browsers that have its key: any other program, and
// any page that is open in the same browser, would read with the user's rights.
type Local struct {
	key   string
	hosts map[string]bool
	proxy *httputil.ReverseProxy
}

// NewLocal returns what serves at an address, HOST:PORT, what is at to.
func NewLocal(address string, to *url.URL, transport http.RoundTripper) *Local {
	return &Local{
		key: rand.Text(), hosts: map[string]bool{address: true},
		proxy: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
			Transport: transport,
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadGateway)
				_, _ = w.Write([]byte(`{"message":"The manager is not reached any more: end kubectl joulevirt page, and start it again."}`))
			},
		},
	}
}

// Path opens the page in a browser, with the key.
func (l *Local) Path() string { return "/?" + keyName + "=" + l.key }

// ServeHTTP implements http.Handler.
func (l *Local) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A page from elsewhere whose name leads to this machine has another Host.
	if !l.hosts[r.Host] {
		http.Error(w, "this is served at another address: open the one that kubectl joulevirt page printed", http.StatusMisdirectedRequest)
		return
	}
	if l.isKey(r.URL.Query().Get(keyName)) {
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: l.key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	cookie, err := r.Cookie(cookieName)
	if err != nil || !l.isKey(cookie.Value) {
		http.Error(w, "the key is missing: open the address that kubectl joulevirt page printed, all of it", http.StatusForbidden)
		return
	}
	l.proxy.ServeHTTP(w, r)
}

func (l *Local) isKey(text string) bool {
	return subtle.ConstantTimeCompare([]byte(text), []byte(l.key)) == 1
}
