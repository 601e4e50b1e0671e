package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

func TestSend(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	counters := &stats{}
	s := &sender{stats: counters}
	post := func(query url.Values) int {
		recorder := httptest.NewRecorder()
		s.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/send?"+query.Encode(), nil))
		return recorder.Code
	}
	good := func() url.Values {
		return url.Values{"address": {listener.Addr().String()}, "bitsPerSecond": {"8e6"}, "seconds": {"0.3"}}
	}
	for field, values := range map[string][]string{
		"address": {"", "here", "127.0.0.1"}, "bitsPerSecond": {"", "0", "-1", "NaN", "1e11"}, "seconds": {"", "0", "NaN", "1e9"},
	} {
		for _, value := range values {
			query := good()
			query.Set(field, value)
			if code := post(query); code != http.StatusBadRequest {
				t.Errorf("%s %q was answered with %d", field, value, code)
			}
		}
	}
	if code := post(good()); code != http.StatusNoContent {
		t.Fatalf("a good request was answered with %d", code)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The end of the transfer ends the connection in order, or this fails.
	n, err := io.Copy(io.Discard, conn)
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 || uint64(n) != counters.Sent.Load() {
		t.Errorf("%d bytes came, %d were counted", n, counters.Sent.Load())
	}
	if most := int64(0.3 * 1e6); n > most {
		t.Errorf("%d bytes came, more than the %d that were due", n, most)
	}
	if counters.SendErrors.Load() != 0 {
		t.Error("an error was counted")
	}
}
