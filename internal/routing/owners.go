package routing

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FieldManagers returns who owns a field of an object by its managed fields, in
// their order. path is that of the API's FieldsV1, such as f:spec, f:rules.
func FieldManagers(object metav1.Object, path ...string) []string {
	var out []string
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" && entry.FieldsV1 != nil && ownsField(entry.FieldsV1.GetRawBytes(), path) {
			out = append(out, entry.Manager)
		}
	}
	return out
}

// ForeignManager returns the first owner of a field other than us. Empty: there
// is none.
func ForeignManager(object metav1.Object, path ...string) string {
	for _, manager := range FieldManagers(object, path...) {
		if manager != FieldOwner {
			return manager
		}
	}
	return ""
}

// ownsField walks down one step at a time. What cannot be read is not owned.
func ownsField(fields []byte, path []string) bool {
	for _, step := range path {
		var level map[string]json.RawMessage
		if err := json.Unmarshal(fields, &level); err != nil {
			return false
		}
		next, ok := level[step]
		if !ok {
			return false
		}
		fields = next
	}
	return true
}
