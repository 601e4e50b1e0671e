package routing

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patch merges a change into an object as FieldOwner, and gives the object the API server's answer.
// Errors of the API server are returned as they are.
func Patch(ctx context.Context, writer client.Writer, object client.Object, change map[string]any, options ...client.PatchOption) error {
	raw, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	return writer.Patch(ctx, object, client.RawPatch(types.MergePatchType, raw), append(options, client.FieldOwner(FieldOwner))...)
}
