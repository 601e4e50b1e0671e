package page

import (
	"errors"
	"net/http"
	"strings"
)

const (
	// cookieName binds the cookie to this host, by the rules of browsers.
	cookieName = "__Host-joulevirt-token"
	// mostCookie is what browsers keep of one, name and attributes included.
	mostCookie = 3900
	// mostForm is more than any token.
	mostForm = 64 << 10
)

var errLongToken = errors.New("this token is too long for a browser's cookie: open the page by kubectl joulevirt page, or use a ServiceAccount's token")

// tokenOf is what a request shows to say who calls: its header's, or its cookie's.
func tokenOf(r *http.Request) string {
	if scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// session returns a cookie that ends with the browser's session. Scripts cannot read it, and
// requests from other sites do not have it.
func session(token string) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: token, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

func (p *Page) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	token := strings.TrimSpace(r.PostFormValue("token"))
	if token == "" {
		p.files.signIn(w, http.StatusBadRequest, "Paste a token.")
		return
	}
	if len(token) > mostCookie {
		p.files.signIn(w, http.StatusBadRequest, sentence(errLongToken))
		return
	}
	if err := p.gate.admit(r.Context(), token, addressOf(r)); err != nil {
		p.files.signIn(w, statusOf(err), sentence(err))
		return
	}
	http.SetCookie(w, session(token))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (p *Page) signOut(w http.ResponseWriter, r *http.Request) {
	over := session("")
	over.MaxAge = -1
	http.SetCookie(w, over)
	http.Redirect(w, r, "/signin", http.StatusSeeOther)
}

func (p *Page) showSignIn(w http.ResponseWriter, r *http.Request) {
	err := p.gate.admit(r.Context(), tokenOf(r), addressOf(r))
	switch {
	case err == nil:
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case errors.Is(err, errNoToken):
		p.files.signIn(w, http.StatusOK, "")
	default:
		p.files.signIn(w, statusOf(err), sentence(err))
	}
}

// showPage gives the page to who may see its data. It has none itself.
func (p *Page) showPage(w http.ResponseWriter, r *http.Request) {
	err := p.gate.admit(r.Context(), tokenOf(r), addressOf(r))
	switch {
	case err == nil:
		p.files.index(w)
	case errors.Is(err, errNoToken):
		http.Redirect(w, r, "/signin", http.StatusSeeOther)
	default:
		p.files.signIn(w, statusOf(err), sentence(err))
	}
}

// statusOf is the code of HTTP for what is wrong with who calls.
func statusOf(err error) int {
	var right *denied
	var unasked *unreviewed
	switch {
	case errors.As(err, &right):
		return http.StatusForbidden
	case errors.As(err, &unasked):
		return http.StatusServiceUnavailable
	case errors.Is(err, errTooMany):
		return http.StatusTooManyRequests
	default:
		return http.StatusUnauthorized
	}
}

// sentence begins with a capital letter and ends with a point.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
