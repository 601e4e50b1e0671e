package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// FillEtcd has etcd refuse writes as it does when it has no space, or ends that.
func (c *Cluster) FillEtcd(ctx context.Context, full bool) error {
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		}
	}
	if err := c.maintain(ctx, "status", map[string]string{}, &status); err != nil {
		return err
	}
	action := "DEACTIVATE"
	if full {
		action = "ACTIVATE"
	}
	alarm := map[string]string{"action": action, "memberID": status.Header.Member, "alarm": "NOSPACE"}
	return c.maintain(ctx, "alarm", alarm, &struct{}{})
}

// maintain calls etcd's maintenance API.
func (c *Cluster) maintain(ctx context.Context, call string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcd+"/v3/maintenance/"+call, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s to %s", response.Status, body)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
