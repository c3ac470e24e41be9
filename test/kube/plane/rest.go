// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Do sends Admin's request and reads the answer into the value, unless nil. A
// body that is a string is YAML, others become JSON; patches are merge patches.
func (p *Plane) Do(ctx context.Context, method, path string, body, into any) error {
	return p.DoAs(ctx, p.token, method, path, body, into)
}

// DoAs is Do with somebody else's token.
func (p *Plane) DoAs(ctx context.Context, token, method, path string, body, into any) error {
	kind, text := "application/json", []byte(nil)
	switch b := body.(type) {
	case nil:
	case string:
		kind, text = "application/yaml", []byte(b)
	default:
		var err error
		if text, err = json.Marshal(b); err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	if method == http.MethodPatch {
		kind = "application/merge-patch+json"
	}
	r, err := http.NewRequestWithContext(ctx, method, p.URL+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Accept", "application/json, */*")
	answer, err := p.client.Do(r)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case answer.StatusCode >= 300:
		return &StatusError{answer.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, answer.Status, said)}
	case into == nil:
		return nil
	}
	return json.Unmarshal(said, into)
}

// StatusError is an answer that is no success.
type StatusError struct {
	Code int
	text string
}

func (e *StatusError) Error() string { return e.text }

// Token is one of a service account, as a pod of it on the node has. Both must
// be there; a node of "" binds it to none.
func (p *Plane) Token(ctx context.Context, namespace, account, node string) (string, error) {
	spec := map[string]any{}
	if node != "" {
		spec["boundObjectRef"] = map[string]string{"apiVersion": "v1", "kind": "Node", "name": node}
	}
	request := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
	var answer struct{ Status struct{ Token string } }
	path := "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + account + "/token"
	err := p.Do(ctx, http.MethodPost, path, request, &answer)
	return answer.Status.Token, err
}

// groupsOf are what the API server itself gives such a user.
func groupsOf(user string) string {
	groups := []string{"system:authenticated"}
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	return `"` + strings.Join(groups, `", "`) + `"`
}

func transport(ca []byte) *http.Transport {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
}
