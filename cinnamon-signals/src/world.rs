//! The files in which Linux tells of itself: the only place, beside that of `Memory`, that opens any.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// More than this of a file is not read: `/proc/stat` of a thousand cores is half of it. A table of sockets is longer on a
/// node with thousands of connections, but the kernel puts the listeners first.
const BYTES_MAX: u64 = 256 << 10;

/// Reads below a root; the buffer is used again.
#[derive(Clone, Debug)]
pub(crate) struct World {
    root: PathBuf,
    text: String,
    /// Files that are not on a disk.
    #[cfg(test)]
    feigned: Option<tests::Feigned>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::at(Path::new("/"))
    }

    pub(crate) fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            text: String::new(),
            #[cfg(test)]
            feigned: None,
        }
    }

    /// What `parse` finds in the file of this path, or in words why there is nothing.
    pub(crate) fn look<T>(
        &mut self,
        path: impl AsRef<Path>,
        what: impl Display,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Missing> {
        if !cfg!(target_os = "linux") {
            return Err(Missing::Other("only Linux tells it".to_owned()));
        }
        #[cfg(test)]
        if let Some(feigned) = &self.feigned {
            return feigned.look(path.as_ref(), parse);
        }
        let path = self.root.join(path);
        self.text.clear();
        let read =
            File::open(&path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut self.text));
        if let Err(error) = read {
            let text = format!("{} could not be read: {error}", path.display());
            return Err(match error.kind() {
                io::ErrorKind::NotFound => Missing::File(text),
                _ => Missing::Other(text),
            });
        }
        parse(&self.text)
            .ok_or_else(|| Missing::Other(format!("{} does not hold {what}", path.display())))
    }
}

/// Why something is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// There is no such file.
    File(String),
    /// It cannot be read, or says something else.
    Other(String),
}

impl Missing {
    pub(crate) const fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    pub(crate) fn into_text(self) -> String {
        match self {
            Self::File(text) | Self::Other(text) => text,
        }
    }
}

/// The whole text is a number.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The path of the own cgroup in the hierarchy of this controller, from `/proc/self/cgroup`; the empty name is v2's.
pub(crate) fn own_cgroup<'a>(text: &'a str, controller: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let found = if controller.is_empty() {
            number == "0" && controllers.is_empty()
        } else {
            controllers.split(',').any(|name| name == controller)
        };
        found.then_some(path)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashMap;
    use std::fs;
    use std::sync::{Arc, Mutex};

    use tempfile::TempDir;

    use super::*;

    /// Files that are not on a disk, for tests with a great many samples.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Feigned(Arc<Mutex<HashMap<PathBuf, String>>>);

    impl Feigned {
        pub(crate) fn world(&self) -> World {
            World {
                feigned: Some(self.clone()),
                ..World::new()
            }
        }

        pub(crate) fn write(&self, path: &str, text: String) {
            self.0.lock().unwrap().insert(PathBuf::from(path), text);
        }

        pub(crate) fn look<T>(
            &self,
            path: &Path,
            parse: impl FnOnce(&str) -> Option<T>,
        ) -> Result<T, Missing> {
            let files = self.0.lock().unwrap();
            let text = files.get(path);
            let text = text.ok_or_else(|| Missing::File("no such file".to_owned()))?;
            parse(text).ok_or_else(|| Missing::Other("it holds something else".to_owned()))
        }
    }

    /// Files with these texts below a root of their own.
    pub(crate) fn tree(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            write(&root, path, text);
        }
        root
    }

    pub(crate) fn write(root: &TempDir, path: &str, text: &str) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_missing_says_which_file_and_why() {
        let root = tree(&[("a", "12\n"), ("b", "much\n")]);
        let mut world = World::at(root.path());
        assert_eq!(world.look("a", "a number", number), Ok(12));
        let no_number = world.look("b", "a number", number).unwrap_err();
        assert!(no_number.into_text().ends_with("/b does not hold a number"));
        let none = world.look("c", "a number", number).unwrap_err();
        assert!(none.is_file() && none.into_text().contains("/c could not be read: "));
    }

    #[test]
    fn the_own_cgroup_is_found_by_its_controller() {
        let text = "4:cpu,cpuacct:/a:b\n3:name=cpu:/no\n0::/c\n";
        assert_eq!(own_cgroup(text, "cpuacct"), Some("/a:b"));
        assert_eq!(own_cgroup(text, ""), Some("/c"));
        assert_eq!(own_cgroup(text, "memory"), None);
        assert_eq!(own_cgroup("nonsense\n4:\n", "cpu"), None);
    }
}
