# Thin front to CMake and tools/. `make help` lists the targets.
JOBS  := $(shell nproc 2>/dev/null || echo 2)
CMAKE := cmake -Wno-dev
BUILD := cmake --build
CTEST := ctest --output-on-failure -j$(JOBS)
QUIET := --log-level=WARNING
MAKEFLAGS += --no-print-directory

.PHONY: release help setup setup-test demo test lint tsan clean

release:                    ## build/sol (default)
	@$(CMAKE) $(QUIET) -S . -B build -DCMAKE_BUILD_TYPE=Release -DSOL_TESTS=OFF $(SOL_CMAKE_FLAGS)
	@$(BUILD) build -j$(JOBS) --target sol

help:                       ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

setup:                      ## install the packages that building needs
	@tools/setup build

setup-test:                 ## install the packages that building and testing need
	@tools/setup build test

demo: setup                 ## build, then run and time the built-in model
	@$(MAKE) release
	@tools/demo build/sol

# The release tests come last, so that their closing line ends the output.
test: setup-test            ## release and sanitized tests, clang build, lint (minutes)
	@echo "== release build (gcc)"
	@CC=gcc $(CMAKE) $(QUIET) -S . -B build -DCMAKE_BUILD_TYPE=Release -DSOL_TESTS=ON
	@$(BUILD) build -j$(JOBS)
	@echo "== lint"
	@tools/lint build
	@echo "== library and binary with clang"
	@CC=clang $(CMAKE) $(QUIET) -S . -B build-clang -DCMAKE_BUILD_TYPE=Release -DSOL_TESTS=OFF
	@$(BUILD) build-clang -j$(JOBS)
	@echo "== tests with ASan and UBSan (clang)"
	@CC=clang $(CMAKE) $(QUIET) -S . -B build-asan -DSOL_SANITIZE=ON
	@$(BUILD) build-asan -j$(JOBS)
	@cd build-asan && $(CTEST)
	@echo "== tests, release"
	@cd build && $(CTEST)

lint: setup-test            ## layout, headers, format, cppcheck, clang-tidy on changed files
	@$(CMAKE) $(QUIET) -S . -B build -DCMAKE_BUILD_TYPE=Release
	@tools/lint build

tsan: setup-test            ## tests with ThreadSanitizer
	@CC=clang $(CMAKE) $(QUIET) -S . -B build-tsan -DSOL_TSAN=ON
	@$(BUILD) build-tsan -j$(JOBS)
	@cd build-tsan && $(CTEST)

clean:                      ## remove the build folders
	@rm -rf build build-clang build-asan build-tsan
