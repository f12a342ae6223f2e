#!/usr/bin/env bash
# Make the JSON schemas in this folder again, from Grafana's published types. Needs node and npm; the tests do not.
set -euo pipefail
cd "$(dirname "$0")"
version=13.2.3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$work" && npm init -y >/dev/null && npm install --no-audit --no-fund --silent \
    "@grafana/schema@$version" ts-json-schema-generator@2.4.0 typescript)
cat >"$work/tsconfig.json" <<'EOF'
{"compilerOptions": {"moduleResolution": "bundler", "module": "esnext", "skipLibCheck": true, "types": []}}
EOF

# A wrong path or type name yields a schema that accepts everything: test_schema.py has the negative tests.
schema() { # FILE TYPE TARGET
    (cd "$work" && npx ts-json-schema-generator --no-type-check --tsconfig tsconfig.json \
        --path "node_modules/@grafana/schema/dist/types/raw/$1" --type "$2") >"$3"
}
schema dashboard/x/types.gen.d.ts Dashboard dashboard.json
for panel in timeseries stat table bargauge; do
    schema "composable/$panel/panelcfg/x/types.gen.d.ts" Options "$panel.options.json"
done
for panel in timeseries table; do
    schema "composable/$panel/panelcfg/x/types.gen.d.ts" FieldConfig "$panel.custom.json"
done
