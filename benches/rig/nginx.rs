//! nginx of Debian as the yardstick for passing bytes on: nothing held back, 256 KiB buffers.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::debian;
use super::process::Processes;

/// A running nginx.
pub(crate) struct Nginx {
    process: Child,
    pub(crate) plain: SocketAddr,
    pub(crate) secure: SocketAddr,
}

impl Nginx {
    /// Starts it in `folder`, in front of the endpoint's two sockets.
    pub(crate) fn start(folder: &Path, plain: SocketAddr, secure: SocketAddr, pem: &str) -> Self {
        let program = debian::program("nginx", "usr/sbin/nginx");
        fs::create_dir_all(folder.join("logs")).unwrap();
        fs::write(folder.join("ca.pem"), pem).unwrap();
        let (own_plain, own_secure) = (free_address(), free_address());
        let config = CONFIG
            .replace("@plain_upstream", &plain.to_string())
            .replace("@secure_upstream", &secure.to_string())
            .replace("@plain", &own_plain.to_string())
            .replace("@secure", &own_secure.to_string())
            .replace("@folder", &folder.display().to_string());
        fs::write(folder.join("nginx.conf"), config).unwrap();
        let process = Command::new(program)
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let nginx = Self {
            process,
            plain: own_plain,
            secure: own_secure,
        };
        for address in [own_plain, own_secure] {
            nginx.wait_for(address);
        }
        nginx
    }

    pub(crate) fn processes(&self) -> Processes {
        Processes::family(self.process.id())
    }

    fn wait_for(&self, address: SocketAddr) {
        for _ in 0..500 {
            if TcpStream::connect(address).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("nginx {} doesn't listen on {address}", self.process.id());
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.processes().terminate();
        let _ = self.process.wait();
    }
}

/// An address that was free a moment ago: nginx can't be told to choose one.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

const CONFIG: &str = "
daemon off;
worker_processes auto;
pid @folder/nginx.pid;
error_log @folder/error.log;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path @folder/body;
  proxy_temp_path @folder/proxy;
  fastcgi_temp_path @folder/fastcgi;
  uwsgi_temp_path @folder/uwsgi;
  scgi_temp_path @folder/scgi;
  tcp_nodelay on;
  keepalive_requests 10000000;
  client_max_body_size 64m;
  large_client_header_buffers 8 64k;
  client_body_buffer_size 256k;
  proxy_http_version 1.1;
  proxy_buffering off;
  proxy_request_buffering off;
  proxy_buffer_size 256k;
  proxy_buffers 8 256k;
  proxy_busy_buffers_size 512k;
  proxy_read_timeout 300s;
  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  upstream plain { server @plain_upstream; keepalive 300; keepalive_requests 10000000; }
  upstream secure { server @secure_upstream; keepalive 300; keepalive_requests 10000000; }
  server {
    listen @plain;
    location / {
      proxy_pass http://plain;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
    }
  }
  server {
    listen @secure;
    location / {
      proxy_pass https://secure;
      proxy_ssl_verify on;
      proxy_ssl_name localhost;
      proxy_ssl_protocols TLSv1.3;
      proxy_ssl_trusted_certificate @folder/ca.pem;
      proxy_set_header Connection '';
    }
  }
}
";
