#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cinnamon_fuzz::scenario::check(data));
