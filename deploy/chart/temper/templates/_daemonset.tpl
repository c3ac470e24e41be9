{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/*
A ConfigMap and a DaemonSet; takes root, name, component, mode, tag, nodeSelector
and avoid, the labels of nodes to leave out.
*/}}
{{- define "temper.agent" -}}
{{- $config := include "temper.config" . -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "temper.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
data:
  agent.yaml: |
    {{- $config | nindent 4 }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "temper.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: temper-agent
      app.kubernetes.io/component: {{ .component }}
  # The next nodes follow when these have had the time to attach.
  minReadySeconds: {{ int64 .root.Values.minReadySeconds }}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 10%
  template:
    metadata:
      labels:
        {{- include "temper.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
      annotations:
        # A new configuration is a new pod; the scheduler stays attached meanwhile.
        temper.dev/config: {{ sha256sum $config | trunc 16 }}
    spec:
      serviceAccountName: temper-agent
      automountServiceAccountToken: true
      priorityClassName: system-node-critical
      terminationGracePeriodSeconds: 10
      {{- with .root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .avoid }}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            # Terms are or-ed: a node that lacks any of the labels is ours.
            nodeSelectorTerms:
              {{- range $key, $value := . }}
              - matchExpressions:
                  - key: {{ $key }}
                    operator: NotIn
                    values: [{{ $value | quote }}]
              {{- end }}
      {{- end }}
      {{- with .root.Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsUser: 0
        runAsGroup: 0
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: agent
          image: {{ printf "%s:%s" .root.Values.image.repository (.tag | default .root.Chart.AppVersion) | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [--config=/etc/temper/agent.yaml, --pin-dir=/run/bpf/temper, --log-level={{ .root.Values.logLevel }}]
          env:
            - name: NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
          ports:
            - name: metrics
              containerPort: 9464
              protocol: TCP
          livenessProbe:
            httpGet:
              path: /healthz
              port: metrics
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet:
              path: /readyz
              port: metrics
            periodSeconds: 5
            timeoutSeconds: 5
          resources:
            {{- toYaml .root.Values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            privileged: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
              add: [BPF, PERFMON]
          volumeMounts:
            - name: config
              mountPath: /etc/temper
              readOnly: true
            - name: cgroup
              mountPath: /sys/fs/cgroup
              readOnly: true
            # Not below /sys/fs: AppArmor's profiles of the runtimes deny writes there.
            - name: bpffs
              mountPath: /run/bpf
            - name: run
              mountPath: /run/temper
      volumes:
        - name: config
          configMap:
            name: {{ .name }}
        - name: cgroup
          hostPath:
            path: /sys/fs/cgroup
            type: Directory
        - name: bpffs
          hostPath:
            path: /sys/fs/bpf
            type: Directory
        - name: run
          hostPath:
            path: /run/temper
            type: DirectoryOrCreate
{{- end }}
