// Package fetch asks servers in tests.
package fetch

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Once returns a client that keeps no connection: the next request finds whoever serves then.
func Once() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// Body returns the body of a URL. Every status but 200 is an error.
func Body(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return string(body), nil
}
