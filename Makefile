# Every command a contributor needs. What takes more than a line is a script under tools/, which also says where things
# are built (outside the checkout, under the user's cache directory) and with which compiler. Both can be overridden:
# make test CARGO_TARGET_DIR=target CXX=g++ CC=gcc

CARGO := tools/cargo.sh
ROCKS := tools/cargo-rocks.sh
ROCKS_PACKAGES := -p cinnamon-rocks -p cinnamon-lab -p cinnamon-examples

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup rocksdb demo sim alerts test proof lint docs bench fuzz miri

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## check for the tools a build needs and install what is missing
	@tools/setup.sh

rocksdb: setup ## compile RocksDB, once a machine
	@tools/rocksdb.sh

demo: rocksdb ## break a node four ways, and see who gets dropped
	$(ROCKS) run --release --locked -p cinnamon-lab -- demo

sim: ## judge the law in virtual time; needs no RocksDB
	$(CARGO) run --release --locked -p cinnamon-lab --no-default-features -- sim

alerts: setup ## see that each alert fires when it should; needs no RocksDB
	@tools/alerts.sh

test: rocksdb ## run every test
	$(CARGO) test --locked --all-features --all-targets
	$(CARGO) test --locked --all-features --doc
	@tools/free.sh
	@tools/loom.sh
	$(ROCKS) test --release --locked $(ROCKS_PACKAGES)
	@tools/alerts.sh
	@tools/instructions.sh

proof: setup ## the random tests for an hour instead of seconds; needs no RocksDB
	@tools/proof.sh

lint: rocksdb ## formatting, clippy, rustdoc, scripts, licences; warnings are errors
	@tools/lint.sh

docs: setup ## build the API documentation and the book
	@tools/docs.sh

bench: ## measure the speed beside others, into docs/performance.md; needs no RocksDB
	@tools/bench.sh

fuzz: setup ## mutate what operators write, CINNAMON_FUZZ_SECONDS a parser (60); needs no RocksDB
	@tools/fuzz.sh

miri: ## unit tests of the core under Miri, where nightly Rust has it; takes half an hour
	@tools/miri.sh
