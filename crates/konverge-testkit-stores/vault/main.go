// Command vault serves the real Vault core for tests: the parts of `vault server -config=FILE` that they need, without
// the hundreds of cloud plugins. The configuration file is Vault's own, so that a test can run the published program
// instead, or OpenBao's.
package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	log "github.com/hashicorp/go-hclog"
	jwt "github.com/hashicorp/vault-plugin-auth-jwt"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/audit"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/builtin/credential/cert"
	"github.com/hashicorp/vault/command/server"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/internalshared/listenerutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical"
	"github.com/hashicorp/vault/sdk/physical/file"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

var credentials = map[string]logical.Factory{
	"approle":    approle.Factory,
	"cert":       cert.Factory,
	"jwt":        jwt.Factory,
	"kubernetes": kubernetes.Factory,
}

var engines = map[string]logical.Factory{"kv": kv.Factory}

var storages = map[string]physical.Factory{"file": file.NewFileBackend, "inmem": inmem.NewInmem}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vault:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 || arguments[0] != "server" {
		return errors.New("the only command is: server -config=FILE")
	}
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	path := flags.String("config", "", "the configuration `file`")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	config, err := server.LoadConfigFile(*path)
	if err != nil {
		return err
	}
	logger := log.New(&log.LoggerOptions{Name: "vault", Level: log.Info})
	core, err := newCore(config, logger)
	if err != nil {
		return err
	}
	for _, listener := range config.Listeners {
		if err := serve(core, listener, logger); err != nil {
			return err
		}
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
	return core.Shutdown()
}

func newCore(config *server.Config, logger log.Logger) (*vault.Core, error) {
	if config.Storage == nil || storages[config.Storage.Type] == nil {
		return nil, errors.New("storage must be inmem or file")
	}
	storage, err := storages[config.Storage.Type](config.Storage.Config, logger)
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	return vault.NewCore(&vault.CoreConfig{
		RawConfig:          config,
		Physical:           storage,
		StorageType:        config.Storage.Type,
		RedirectAddr:       config.APIAddr,
		LogicalBackends:    engines,
		CredentialBackends: credentials,
		AuditBackends:      map[string]audit.Factory{audit.TypeFile: audit.NewFileBackend},
		BuiltinRegistry:    registry{},
		Logger:             logger,
		DisableMlock:       true,
		MaxLeaseTTL:        config.MaxLeaseTTL,
		DefaultLeaseTTL:    config.DefaultLeaseTTL,
	})
}

func serve(core *vault.Core, config *configutil.Listener, logger log.Logger) error {
	listener, err := net.Listen("tcp", config.Address)
	if err != nil {
		return err
	}
	if !config.TLSDisable {
		settings, _, err := listenerutil.TLSConfig(config, map[string]string{}, nil)
		if err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		listener = tls.NewListener(listener, settings)
	}
	handler := vaulthttp.Handler.Handler(&vault.HandlerProperties{Core: core, ListenerConfig: config})
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: logger.StandardLogger(nil)}
	go func() {
		logger.Error("the listener ended", "error", server.Serve(listener))
	}()
	return nil
}

// registry tells the core which plugins are built in: those above.
type registry struct{}

func (registry) factories(kind consts.PluginType) map[string]logical.Factory {
	switch kind {
	case consts.PluginTypeCredential:
		return credentials
	case consts.PluginTypeSecrets:
		return engines
	default:
		return nil
	}
}

func (r registry) Get(name string, kind consts.PluginType) (func() (interface{}, error), bool) {
	factory, found := r.factories(kind)[name]
	return func() (interface{}, error) { return factory, nil }, found
}

func (r registry) Contains(name string, kind consts.PluginType) bool {
	_, found := r.factories(kind)[name]
	return found
}

func (r registry) Keys(kind consts.PluginType) []string {
	var names []string
	for name := range r.factories(kind) {
		names = append(names, name)
	}
	return names
}

func (r registry) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, r.Contains(name, kind)
}

func (registry) IsBuiltinEntPlugin(string, consts.PluginType) bool {
	return false
}
