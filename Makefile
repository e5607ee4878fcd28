# Thin front to CMake and tools/. `make help` lists the targets.
JOBS  := $(shell nproc 2>/dev/null || echo 2)
# Ninja where it is: new build folders are ready sooner. Asked for by each command, as `make test` installs it.
CMAKE := CMAKE_GENERATOR="$$(command -v ninja >/dev/null && echo Ninja || echo Unix Makefiles)" cmake -Wno-dev
BUILD := cmake --build
# One test more than there are processors: many wait, for signals, sleeping programs and disks.
CTEST := ctest --output-on-failure -j$(shell expr $(JOBS) + 1)
QUIET := --log-level=WARNING
# Kernels of every architecture, once for all build folders; tests do with 90a and what only another one has, as
# `make kernels` sees that the rest compiles.
ALL    := -DSOL_CUDA_ARCHS=all
TESTED := -DSOL_CUDA_ARCHS=tested
MAKEFLAGS += --no-print-directory

# make install: DESTDIR is put before PREFIX; make fuzz: seconds for each target,
# or fewer once it ran N times
PREFIX  ?= /usr/local
DESTDIR ?=
T       ?= 60
N       ?= 0
# make soak: kills at random moments
KILLS   ?= 2000
# make arm: every script too
ARM_ALL ?= OFF

.PHONY: release help setup setup-test demo test lint kernels tsan pgo install deb deb-try fuzz soak arm clean

release:                    ## build/sol (default)
	@$(CMAKE) $(QUIET) -S . -B build -DCMAKE_BUILD_TYPE=Release -DSOL_TESTS=OFF \
	    -DSOL_CUDA_ARCHS=90a $(SOL_CMAKE_FLAGS)
	@$(BUILD) build -j$(JOBS) --target sol

help:                       ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18
	@echo "Variables: PREFIX=$(PREFIX) and DESTDIR= (install), T=$(T) N= (fuzz: seconds, executions a target), KILLS=$(KILLS) (soak)"

setup:                      ## install the packages that building needs
	@tools/setup build

setup-test:                 ## install the packages that building and testing need
	@tools/setup build test

demo: setup                 ## build, then run and time the built-in model
	@$(MAKE) release
	@tools/demo build/sol

# What a test only repeats (draws, tokens of a text) the sanitized ones repeat less often than the release tests,
# which do it in full. Those come last, so that their closing line ends the output.
# The sanitized build has clang's warnings too, but not the sizes of its frames, its link of the libraries, and what is
# left without assertions: hence a third build. Of the release tests it leaves out scripts that only treat texts, signals
# and terminals.
test: setup-test            ## release and sanitized tests, clang build, lint (minutes)
	@echo "== release build (gcc)"
	@CC=gcc $(CMAKE) $(QUIET) -S . -B build -DCMAKE_BUILD_TYPE=Release -DSOL_TESTS=ON $(TESTED)
	@$(BUILD) build -j$(JOBS)
	@echo "== lint"
	@tools/lint build
	@echo "== library and binary with clang"
	@CC=clang $(CMAKE) $(QUIET) -S . -B build-clang -DCMAKE_BUILD_TYPE=Release -DSOL_TESTS=OFF $(TESTED)
	@$(BUILD) build-clang -j$(JOBS)
	@echo "== tests with ASan and UBSan (clang)"
	@CC=clang $(CMAKE) $(QUIET) -S . -B build-asan -DSOL_SANITIZE=ON $(TESTED)
	@$(BUILD) build-asan -j$(JOBS)
	@cd build-asan && SOL_TEST_EFFORT=10 $(CTEST)
	@echo "== tests, release"
	@cd build && $(CTEST) -LE text

lint: setup-test            ## layout, headers, format, cppcheck, clang-tidy on changed files
	@$(CMAKE) $(QUIET) -S . -B build -DCMAKE_BUILD_TYPE=Release
	@tools/lint build

kernels:                    ## compile the CUDA kernels for every architecture, and look for spills
	@echo "== kernels for every architecture"
	@if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then \
	    $(CMAKE) $(QUIET) -S . -B build-kernels $(ALL) -DSOL_TESTS=OFF && \
	    $(BUILD) build-kernels -j$(JOBS) --target kernels; \
	else echo "skipped: there is no nvcc"; fi

tsan: setup-test            ## tests with ThreadSanitizer
	@CC=clang $(CMAKE) $(QUIET) -S . -B build-tsan -DSOL_TSAN=ON
	@$(BUILD) build-tsan -j$(JOBS)
	@cd build-tsan && $(CTEST)

pgo: setup release          ## profile-guided build in build-pgo, compared with build/sol (gcc)
	@tools/pgo build-pgo build/sol

install: setup              ## program, libraries, headers, manual, completions below PREFIX
	@$(CMAKE) $(QUIET) -S . -B build-install -DCMAKE_BUILD_TYPE=Release -DSOL_TESTS=OFF \
	    -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(SOL_CMAKE_FLAGS)
	@$(BUILD) build-install -j$(JOBS)
	@DESTDIR=$(DESTDIR) cmake --install build-install

deb: setup                  ## a Debian package of the program, in build-deb
	@tools/setup deb
	@tools/deb build-deb

deb-try: deb                ## install, run and remove that package in a fresh Debian (root)
	@tools/setup deb-try
	@tools/deb_try build-deb/sol_*.deb

fuzz: setup-test            ## run every fuzz target for T seconds (clang, libFuzzer)
	@CC=clang $(CMAKE) $(QUIET) -S . -B build-fuzz -DSOL_FUZZ=ON
	@$(BUILD) build-fuzz -j$(JOBS) --target fuzz
	@tools/fuzz -n $(N) $(T) build-fuzz

soak: setup-test            ## long harnesses: KILLS kills, every kind of file, fuzzing for T seconds each (hours)
	@$(MAKE) release
	@echo "== $(KILLS) kills"
	@tests/soak_kills.py build/sol --kills $(KILLS)
	@echo "== every command with every kind of file"
	@tests/soak_objects.sh build/sol
	@echo "== a server with 1000 clients, half an hour"
	@tests/soak_serve.py build/sol
	@echo "== a server with two copies, ten minutes"
	@tests/soak_serve.py build/sol --copies 2 --seconds 600
	@echo "== every next step"
	@SOL_NEXT_ALL=1 python3 tests/next_steps.py build/sol .
	@echo "== every example, every kernel through NVRTC, more schedules of emulated Hopper and Blackwell"
	@CC=gcc $(CMAKE) $(QUIET) -S . -B build -DCMAKE_BUILD_TYPE=Release -DSOL_TESTS=ON $(ALL)
	@$(BUILD) build -j$(JOBS)
	@cd build && SOL_TEST_WHOLE=1 $(CTEST) -R '^(cli_draft|cli_emulate|cli_emulate_async|cli_emulate_train|cli_examples|unit_gpu)$$'
	@$(MAKE) arm ARM_ALL=ON
	@$(MAKE) fuzz

arm: setup                  ## cross-build for aarch64, run under qemu what a processor matters to (ARM_ALL=ON: all)
	@tools/setup arm
	@$(CMAKE) $(QUIET) -S . -B build-arm -DCMAKE_BUILD_TYPE=Release \
	    -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DSOL_EMULATE_ALL=$(ARM_ALL) $(TESTED) $(SOL_CMAKE_FLAGS)
	@$(BUILD) build-arm -j$(JOBS)
	@echo "== tests for aarch64 under qemu"
	@cd build-arm && $(CTEST)
	@echo "== what was reduced or skipped there, and how often"
	@grep -hE '(reduced:|skipped)' build-arm/Testing/Temporary/LastTest.log | sort | uniq -c

clean:                      ## remove the build folders
	@rm -rf build build-arm build-asan build-clang build-deb build-fuzz build-install build-kernels build-pgo build-tsan
