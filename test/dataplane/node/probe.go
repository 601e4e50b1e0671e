package node

import (
	"context"
	"fmt"
	"net/http"
)

// Answers asks a program in the node's network once, and is nil when it answers
// with status 200.
func (n *Node) Answers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	web := http.Client{Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
	response, err := web.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close() // nothing of it was wanted
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
